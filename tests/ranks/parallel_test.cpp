// ranks: 2 4
// Pipelines and ZeRO stages on real ranks: results equal those of one rank; bytes sent and bytes in
// memory are as computed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "ranks/setting.h"
#include "support/small_training.h"

namespace piton::ranks::parallel_test {

namespace {

using test::SmallLayout;
using test::SmallTraining;
using Values = std::map<std::string, std::vector<float>>;

struct Outcome {
  double loss = 0;
  Values values;
};

// `steps` steps of backward and update. The loss of the last step on the last stage.
Outcome trained(World& in, const SmallLayout& layout, int steps = 2) {
  SmallTraining training(in, device(), layout);
  Outcome outcome;
  for (int step = 0; step < steps; ++step) {
    outcome.loss = training.backward(step);
    training.update(0.25F);
  }
  outcome.loss += training.evaluate(steps);
  outcome.values = training.values();
  training.mesh.group(Axis::kPipeline).barrier();
  return outcome;
}

// Of the whole batch on one process, computed by every rank for itself.
Outcome whole(int micro_batches) {
  const auto alone = make_single_world(device());
  return trained(*alone, {.schedule = one_forward_one_backward(1, micro_batches)});
}

void expect_equal_bits(const Values& part, const Values& all) {
  for (const auto& [name, values] : part) {
    const std::vector<float>& other = all.at(name);
    ASSERT_EQ(values.size(), other.size());
    EXPECT_EQ(std::memcmp(values.data(), other.data(), values.size() * 4), 0) << name;
  }
}

// Values after two steps from equal weights; sums differ in their order only.
void expect_near(const Values& part, const Values& all) {
  for (const auto& [name, values] : part) {
    const std::vector<float>& other = all.at(name);
    ASSERT_EQ(values.size(), other.size());
    // Gradients sum at most 64 terms below 1 in fp32: 64 roundings of 2^-24, twice.
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], other[i], 2 * 64 * 0x1.0p-24) << name << " " << i;
    }
  }
}

TEST(Pipeline, OnRanksEqualsOneProcessBitForBit) {
  const int stages = world().size();
  for (int micro_batches = 1; micro_batches <= 5; ++micro_batches) {
    const Outcome one = whole(micro_batches);
    for (const ScheduleKind kind :
         {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kZeroBubbleH1}) {
      SCOPED_TRACE(testing::Message() << micro_batches << " micro-batches");
      const Outcome split =
          trained(world(), {.schedule = make_schedule({kind}, stages, micro_batches)});
      EXPECT_EQ(split.loss, world().rank() == stages - 1 ? one.loss : 0);
      expect_equal_bits(split.values, one.values);
    }
  }
}

TEST(Pipeline, SumsTiedWeightsOverItsEnds) {
  const test::SmallModelSizes sizes{.tied = true};
  const auto alone = make_single_world(device());
  const Outcome one = trained(*alone, {.schedule = one_forward_one_backward(1, 3), .sizes = sizes});
  for (const int zero_stage : {0, 1, 2, 3}) {
    const Outcome split = trained(
        world(),
        {.schedule = zero_bubble_h1(world().size(), 3), .zero_stage = zero_stage, .sizes = sizes});
    expect_near(split.values, one.values);
  }
}

TEST(DataParallel, EveryStageTrainsAsOneProcess) {
  const int ranks = world().size();
  const Outcome one = whole(2 * ranks);
  std::vector<Outcome> split;
  for (const int zero_stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "stage " << zero_stage);
    split.push_back(trained(
        world(),
        {.schedule = one_forward_one_backward(1, 2), .data = ranks, .zero_stage = zero_stage}));
    expect_near(split.back().values, one.values);
  }
  expect_equal_bits(split[1].values, split[0].values);
  expect_equal_bits(split[3].values, split[2].values);
}

TEST(DataParallel, StagesAgreeBitForBitOnOneMicroBatch) {
  const int ranks = world().size();
  const SmallLayout layout{.schedule = one_forward_one_backward(1, 1), .data = ranks};
  const Outcome plain = trained(world(), layout);
  for (const int zero_stage : {1, 2, 3}) {
    SmallLayout sharded = layout;
    sharded.zero_stage = zero_stage;
    const Outcome outcome = trained(world(), sharded);
    EXPECT_EQ(outcome.loss, plain.loss);
    expect_equal_bits(outcome.values, plain.values);
  }
}

TEST(DataParallel, WithAPipelineEqualsWithout) {
  if (world().size() != 4) GTEST_SKIP() << "four ranks make two stages of two data ranks";
  const Outcome one =
      trained(*make_single_world(device()), {.schedule = one_forward_one_backward(1, 6)});
  for (const int zero_stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "stage " << zero_stage);
    const Outcome split =
        trained(world(), {.schedule = zero_bubble_h1(2, 3), .data = 2, .zero_stage = zero_stage});
    expect_near(split.values, one.values);
  }
}

struct Bytes {
  std::int64_t reduced = 0;
  std::int64_t scattered = 0;
  std::int64_t gathered = 0;
  std::int64_t received = 0;
  bool operator==(const Bytes&) const = default;
};

Bytes bytes_of(const ReductionGroup& group) {
  const TrafficCounts gradients = group.gradients->traffic();
  const TrafficCounts values = group.values->traffic();
  return {gradients.all_reduce_bytes, gradients.reduce_scatter_bytes, values.all_gather_bytes,
          gradients.received_bytes + values.received_bytes};
}

// What a step puts on the wire, on each rank: all-reduce 2 (n-1)/n B, scatter and gather (n-1)/n B.
// Every rank sends and receives the same: units are cut evenly.
TEST(DataParallel, SendsAndReceivesTheBytesOfItsStageOnEveryRank) {
  const int n = world().size();
  constexpr int kMicroBatches = 3;
  for (const int zero_stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(testing::Message() << "stage " << zero_stage);
    SmallTraining training(world(), device(),
                           {.schedule = one_forward_one_backward(1, kMicroBatches),
                            .data = n,
                            .zero_stage = zero_stage});
    std::int64_t elements = 0;  // without padding
    for (const Parameter* parameter : training.parameters) elements += parameter->elements();
    std::int64_t padded = 0;
    std::int64_t entries = 0;
    for (const ShardUnit& unit : training.weights->units()) {
      padded += unit.size;
      entries += static_cast<std::int64_t>(unit.entries.size());
    }
    const auto units = static_cast<std::int64_t>(training.weights->units().size());
    EXPECT_LE(padded - elements, kUnitAlignment * (entries + units * n));
    const ReductionGroup& group = *training.weights->units()[0].group;
    training.backward(0);
    training.update(0.25F);
    const Bytes before = bytes_of(group);
    training.backward(1);
    training.update(0.25F);
    const Bytes after = bytes_of(group);
    const std::int64_t share = padded * 4 / n * (n - 1);  // one scatter, or gather, on one rank
    const Bytes sent{after.reduced - before.reduced, after.scattered - before.scattered,
                     after.gathered - before.gathered, after.received - before.received};
    // An all-reduce cuts at its own cache lines, which may be uneven by one line of 64 bytes.
    EXPECT_NEAR(static_cast<double>(sent.reduced), zero_stage == 0 ? 2.0 * share : 0.0, 64.0 * n);
    EXPECT_EQ(sent.scattered, zero_stage == 0   ? 0
                              : zero_stage == 1 ? share
                                                : kMicroBatches * share);
    if (zero_stage == 1 || zero_stage == 2) {
      EXPECT_EQ(sent.gathered, share);
    }
    EXPECT_EQ(sent.received, sent.reduced + sent.scattered + sent.gathered);
    if (zero_stage == 3) {
      std::int64_t uses = 0;
      // Each micro-batch uses every parameter forward, and every one but embedding and biases
      // backward.
      for (const ShardUnit& unit : training.weights->units()) {
        const std::string& name = unit.entries[0].parameter->name;
        const bool once = name == "embedding" || name.ends_with(".bias");
        uses += (once ? 1 : 2) * unit.size;
      }
      EXPECT_LE(sent.gathered, kMicroBatches * (n - 1) * uses * 4 / n);
      EXPECT_GE(sent.gathered, kMicroBatches * share);
    }
    if (zero_stage > 0) {
      for (const std::string& other : everyone().gather_bytes(
               fmt::format("{} {} {}", sent.scattered, sent.gathered, sent.received))) {
        EXPECT_EQ(other, fmt::format("{} {} {}", sent.scattered, sent.gathered, sent.received));
      }
    }
  }
}

TEST(Pipeline, SendsOneBoundaryAMicroBatchEachWay) {
  const int stages = world().size();
  constexpr int kMicroBatches = 3;
  SmallTraining training(world(), device(), {.schedule = zero_bubble_h1(stages, kMicroBatches)});
  Communicator& group = training.mesh.group(Axis::kPipeline);
  training.backward(0);
  const std::int64_t before = group.traffic().point_to_point_bytes;
  training.backward(1);
  const std::int64_t sent = group.traffic().point_to_point_bytes - before;
  const std::int64_t boundary = 2 * 5 * 16 * 4;  // b s h fp32
  const bool end = world().rank() == 0 || world().rank() == stages - 1;
  EXPECT_EQ(sent, kMicroBatches * boundary * (end ? 1 : 2));
  group.barrier();
}

// A stage holds the activations of as many micro-batches as its schedule says, and nothing is left.
TEST(Pipeline, HoldsTheActivationsThatItsScheduleSays) {
  const int stages = world().size();
  const auto peak = [&](const Schedule& schedule) {
    SmallTraining training(world(), device(), {.schedule = schedule});
    training.backward(0);
    training.mesh.group(Axis::kPipeline).barrier();
    EXPECT_EQ(training.in_use_bytes(MemoryKind::kActivations), 0);
    return training.arena.counts().peak_bytes[static_cast<std::size_t>(MemoryKind::kActivations)];
  };
  // On stage 0 of 1F1B, p micro-batches are alive however many there are.
  const std::int64_t few = peak(one_forward_one_backward(stages, stages));
  const std::int64_t many = peak(one_forward_one_backward(stages, 3 * stages));
  const std::int64_t one = peak(one_forward_one_backward(stages, 1));
  EXPECT_LE(many, few + 2 * 2 * 5 * 16 * 4) << "two more boundaries that were posted ahead";
  EXPECT_LT(many, (stages + 1) * one);
}

TEST(DataParallel, HoldsTheBytesOfItsStage) {
  const int n = world().size();
  for (const int zero_stage : {0, 1, 2, 3}) {
    SmallTraining training(
        world(), device(),
        {.schedule = one_forward_one_backward(1, 2), .data = n, .zero_stage = zero_stage});
    training.backward(0);
    std::int64_t whole = 0;
    std::int64_t shard = 0;
    for (const ShardUnit& unit : training.weights->units()) {
      whole += unit.size;
      shard += unit.part_size();
    }
    EXPECT_EQ(training.in_use_bytes(MemoryKind::kParameters),
              4 * (zero_stage == 3 ? shard : whole));
    EXPECT_EQ(training.in_use_bytes(MemoryKind::kGradients), 4 * (zero_stage >= 2 ? shard : whole));
    everyone().barrier();
    EXPECT_EQ(training.in_use_bytes(MemoryKind::kCommunication), 0);
  }
}

}  // namespace
}  // namespace piton::ranks::parallel_test
