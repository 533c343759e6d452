#include "parallel/pipeline.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "parallel/chunked_schedules.h"
#include "parallel/simulate.h"
#include "support/delayed_device.h"
#include "support/errors.h"
#include "support/letter_v.h"
#include "support/small_training.h"
#include "support/thread_world.h"

namespace piton {
namespace {

using test::run_ranks;
using test::SmallModelSizes;

struct Result {
  double loss = 0;
  double evaluated = 0;
  std::map<std::string, std::vector<float>> gradients;
};

std::vector<float> to_vector(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.elements()};
}

// Trains one step under `schedule` (one data rank a stage); all stages' gradients and losses in
// one.
Result train(const Schedule& schedule, const SmallModelSizes& sizes = {}, int steps = 1) {
  Result result;
  std::mutex mutex;
  run_ranks(schedule.stages, [&](World& world) {
    HostDevice device;
    test::SmallTraining training(world, device, {.schedule = schedule, .sizes = sizes});
    std::vector<Step> seen;
    training.pipeline->observer = [&](const Step& step) { seen.push_back(step); };
    for (int step = 0; step < steps; ++step) {
      seen.clear();
      const double loss = training.backward(0);
      EXPECT_EQ(seen, schedule.steps[world.rank()]);
      const double evaluated = training.evaluate(0);
      const std::scoped_lock lock(mutex);
      if (training.on_last_stage()) {
        result.loss = loss;
        result.evaluated = evaluated;
      } else {
        EXPECT_EQ(loss, 0);
      }
      for (const Parameter* parameter : training.parameters) {
        const auto [place, is_new] =
            result.gradients.insert({parameter->name, to_vector(parameter->gradient)});
        if (is_new) continue;
        EXPECT_EQ(place->second, to_vector(parameter->gradient)) << parameter->name;
      }
    }
    // Sends may be under way until the other stages have taken them.
    training.mesh.group(Axis::kPipeline).barrier();
    EXPECT_EQ(training.in_use_bytes(MemoryKind::kActivations), 0) << "activations are left";
  });
  return result;
}

void expect_equal_bits(const Result& a, const Result& b) {
  EXPECT_EQ(std::memcmp(&a.loss, &b.loss, sizeof a.loss), 0) << a.loss << " and " << b.loss;
  EXPECT_EQ(a.evaluated, b.evaluated);
  EXPECT_EQ(a.loss, a.evaluated);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, gradient] : a.gradients) {
    const std::vector<float>& other = b.gradients.at(name);
    ASSERT_EQ(gradient.size(), other.size());
    EXPECT_EQ(std::memcmp(gradient.data(), other.data(), gradient.size() * 4), 0) << name;
    EXPECT_TRUE(std::ranges::any_of(gradient, [](float g) { return g != 0; })) << name;
  }
}

// p stages with `each` chunks on every one, chunk c on stage c mod p: all forwards, then all
// backwards.
Schedule round_trip(int stages, int each, int micro_batches) {
  Schedule schedule{
      .name = "all forward, all back", .stages = stages, .micro_batches = micro_batches};
  for (int chunk = 0; chunk < stages * each; ++chunk)
    schedule.stage_of_chunk.push_back(chunk % stages);
  schedule.steps.resize(stages);
  for (int stage = 0; stage < stages; ++stage) {
    for (int round = 0; round < each; ++round) {
      for (int m = 0; m < micro_batches; ++m) {
        schedule.steps[stage].push_back({Pass::kForward, m, round * stages + stage});
      }
    }
    for (int round = each; round-- > 0;) {
      for (int m = 0; m < micro_batches; ++m) {
        schedule.steps[stage].push_back({Pass::kBackward, m, round * stages + stage});
      }
    }
  }
  return schedule;
}

TEST(Pipeline, EqualsOneProcessBitForBit) {
  for (int micro_batches = 1; micro_batches <= 5; ++micro_batches) {
    const Result whole = train(one_forward_one_backward(1, micro_batches));
    for (const int stages : {2, 4}) {
      SCOPED_TRACE(testing::Message()
                   << stages << " stages, " << micro_batches << " micro-batches");
      expect_equal_bits(train(one_forward_one_backward(stages, micro_batches)), whole);
      expect_equal_bits(train(zero_bubble_h1(stages, micro_batches)), whole);
    }
    expect_equal_bits(train(zero_bubble_h1(1, micro_batches)), whole);
  }
}

TEST(Pipeline, RunsSeveralChunksAStage) {
  const Result whole = train(one_forward_one_backward(1, 3));
  // Two chunks on one stage pass their boundary without a message; four on two stages go round
  // twice.
  for (const Schedule& schedule : {round_trip(1, 2, 3), round_trip(2, 2, 3)}) {
    ASSERT_NO_THROW(simulate(schedule, {{}}));
    expect_equal_bits(train(schedule), whole);
  }
}

std::vector<Schedule> schedules_of_chunks(int stages, int micro_batches) {
  return {interleaved(stages, 2, micro_batches, stages),
          interleaved(stages, 3, micro_batches, stages), all_in_all_out(stages, 2, micro_batches),
          zero_bubble_v(stages, micro_batches), dual_pipe_v(stages, micro_batches)};
}

TEST(Pipeline, RunsEveryScheduleOfChunksToTheSameBits) {
  for (const auto& [stages, micro_batches] : {std::pair(2, 4), std::pair(2, 6), std::pair(4, 8)}) {
    const Result whole = train(one_forward_one_backward(1, micro_batches));
    for (const Schedule& schedule : schedules_of_chunks(stages, micro_batches)) {
      SCOPED_TRACE(schedule.name);
      expect_equal_bits(train(schedule), whole);
    }
  }
  expect_equal_bits(train(zero_bubble_v(2, 1)), train(one_forward_one_backward(1, 1)));
  expect_equal_bits(train(interleaved(2, 2, 8, 3)), train(one_forward_one_backward(1, 8)));
}

// Fold3D's purpose: the gradients of a chunk are summed over data ranks, each once, after its last
// backward and before the last backward of the chunk below.
TEST(Pipeline, SumsTheGradientsOfAChunkUnderTheBackwardOfAnother) {
  constexpr int kMicroBatches = 4;
  for (const Schedule& schedule :
       {all_in_all_out(2, 3, kMicroBatches), interleaved(2, 3, kMicroBatches, 2)}) {
    SCOPED_TRACE(schedule.name);
    run_ranks(4, [&](World& world) {
      HostDevice device;
      test::SmallTraining training(world, device, {.schedule = schedule, .data = 2});
      const std::vector<ShardUnit>& units = training.weights->units();
      Communicator& group = *units[0].group->gradients;
      std::vector<int> ended;  // the chunks that have gone back with all micro-batches
      std::map<int, int> backwards;
      Step before;
      training.pipeline->observer = [&](const Step& step) {
        if (before.pass == Pass::kBackward && ++backwards[before.chunk] == kMicroBatches) {
          ended.push_back(before.chunk);
        }
        before = step;
        std::int64_t bytes = 0;
        for (const ShardUnit& unit : units) {
          const bool ready = std::ranges::count(ended, unit.entries[0].parameter->chunk) > 0;
          if (ready) bytes += unit.size * 4;
        }
        // On two data ranks each sends as many bytes as there are: a half to scatter, a half to
        // gather.
        EXPECT_EQ(group.traffic().all_reduce_bytes, bytes) << to_string(step);
      };
      training.backward(0);
      EXPECT_EQ(ended.size(), 2U) << "the last chunk ends the step";
      std::int64_t whole = 0;
      for (const ShardUnit& unit : units) whole += unit.size * 4;
      EXPECT_EQ(group.traffic().all_reduce_bytes, whole);
      training.mesh.group(Axis::kPipeline).barrier();
    });
  }
}

TEST(Pipeline, TiedEndsThatMeetOnAStageShareOneParameter) {
  const SmallModelSizes sizes{.tied = true};
  ASSERT_NO_THROW(simulate(test::letter_v(3), {{}}));
  expect_equal_bits(train(test::letter_v(3), sizes), train(one_forward_one_backward(1, 3), sizes));
  // Here the two contributions to the table are added in another order of micro-batches.
  const Result whole = train(one_forward_one_backward(1, 4), sizes);
  for (const Schedule& schedule : {zero_bubble_v(2, 4), dual_pipe_v(2, 4)}) {
    const Result split = train(schedule, sizes);
    EXPECT_EQ(split.loss, whole.loss);
    for (const auto& [name, gradient] : whole.gradients) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        const float tolerance = name == "embedding" ? 1e-6F * (1 + std::abs(gradient[i])) : 0.0F;
        ASSERT_NEAR(split.gradients.at(name)[i], gradient[i], tolerance) << name;
      }
    }
  }
}

TEST(Pipeline, GivesTheSameBitsEveryStep) {
  expect_equal_bits(train(zero_bubble_h1(2, 3), {}, 3), train(zero_bubble_h1(2, 3)));
}

// The stages add their parts of a tied gradient after each has summed its own: other rounding.
TEST(Pipeline, SumsTiedWeightsOverStages) {
  const SmallModelSizes sizes{.tied = true};
  const Result whole = train(one_forward_one_backward(1, 3), sizes);
  const Result split = train(zero_bubble_h1(4, 3), sizes);
  EXPECT_EQ(split.loss, whole.loss);
  ASSERT_EQ(split.gradients.size(), whole.gradients.size());
  for (const auto& [name, gradient] : whole.gradients) {
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      const float tolerance = name == "embedding" ? 1e-6F * (1 + std::abs(gradient[i])) : 0.0F;
      ASSERT_NEAR(split.gradients.at(name)[i], gradient[i], tolerance) << name;
    }
  }
}

// One process, but work that runs late in separate memory: a missing wait computes from NaN.
TEST(Pipeline, OnALateDeviceEqualsTheHost) {
  const SmallModelSizes sizes{.blocks = 2, .tied = true};
  const auto trained = [&](Device& device, const Schedule& schedule, int zero_stage) {
    const auto world = make_single_world(device);
    test::SmallTraining training(*world, device,
                                 {.schedule = schedule, .zero_stage = zero_stage, .sizes = sizes});
    std::pair<double, std::map<std::string, std::vector<float>>> result;
    for (int step = 0; step < 3; ++step) {
      result.first += training.backward(step);
      training.update(0.25F);
    }
    result.second = training.values();
    training.stream->synchronize();
    return result;
  };
  for (const int zero_stage : {0, 1, 2, 3}) {
    for (const Schedule& schedule : {zero_bubble_h1(1, 2), round_trip(1, 2, 2)}) {
      HostDevice host;
      DelayedDevice late(/*seed=*/zero_stage + 1, /*max_delay_us=*/50);
      EXPECT_EQ(trained(late, schedule, zero_stage), trained(host, schedule, zero_stage));
    }
  }
}

TEST(Pipeline, RefusesMoreMessagesThanItsGroupCanNumber) {
  const Schedule schedule = one_forward_one_backward(2, 4);
  const auto run = [&](int largest_tag) {
    test::ThreadWorldState state;
    state.largest_tag = largest_tag;
    run_ranks(
        2,
        [&](World& world) {
          HostDevice device;
          test::SmallTraining training(world, device, {.schedule = schedule});
          training.backward(0);
          training.mesh.group(Axis::kPipeline).barrier();
        },
        &state);
  };
  run(100);
  const std::string message = message_of(Fault::kUsage, [&] { run(60); });
  EXPECT_NE(message.find("--global-batch-size: 4 micro-batches per step through 2 chunks"),
            std::string::npos)
      << message;
}

TEST(Pipeline, RefusesAScheduleThatIsNotValid) {
  Schedule schedule = one_forward_one_backward(1, 2);
  schedule.steps[0].pop_back();
  EXPECT_THROW(train(schedule), Error);
}

}  // namespace
}  // namespace piton
