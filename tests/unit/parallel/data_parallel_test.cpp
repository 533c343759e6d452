#include "parallel/data_parallel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "parallel/bucketed_gradients.h"
#include "parallel/gathered_weights.h"
#include "parallel/scattered_gradients.h"
#include "support/sampled.h"
#include "support/thread_world.h"

namespace piton {
namespace {

using test::run_ranks;
using test::ThreadWorldState;

constexpr std::int64_t kBlock = 16384;

// Values and gradients are small integers, so that every sum is exact in any order and every stage
// must give the same bits.
double gradient_number(int rank, int micro_batch, const std::string& name, std::int64_t i) {
  return static_cast<double>(
      (rank * 7 + micro_batch * 3 + static_cast<int>(name.size()) * 5 + i * 11) % 17 - 8);
}
double value_number(const std::string& name, std::int64_t i) {
  return static_cast<double>((static_cast<int>(name.back()) + i * 13) % 29 - 14);
}

struct Spec {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  bool trainable = true;
  bool split_tokens = false;  // partial over tensor
  std::vector<int> tied_stages = {};
};

const std::vector<Spec> kSpecs = {
    {"embedding.a", {3 * kBlock / 64, 64}},    {"norm.b", {40}},    {"bias.cc", {1}},
    {"frozen.d", {30, 7}, DType::kF32, false}, {"up.e", {300, 70}}, {"head.ff", {2 * kBlock + 9}},
};

// One rank's side: device, arena, mesh, parameters.
struct Rank {
  Rank(World& world, MeshSizes sizes, const std::vector<Spec>& specs, int zero_stage)
      : mesh(world, sizes), stream(device.make_stream()), kernels(make_reference_kernels()) {
    for (const Spec& spec : specs) {
      Parameter parameter;
      parameter.name = spec.name;
      parameter.dtype = spec.dtype;
      parameter.shape = spec.shape;
      parameter.trainable = spec.trainable;
      parameter.contributions = 1;
      parameter.tied_stages = spec.tied_stages;
      parameter.placement[Axis::kData].gradient_is_partial = true;
      parameter.placement[Axis::kContext].gradient_is_partial = true;
      parameter.placement[Axis::kTensor].gradient_is_partial = spec.split_tokens;
      parameter.placement[Axis::kPipeline].gradient_is_partial = spec.tied_stages.size() > 1;
      parameters.add(std::move(parameter));
    }
    shards = ShardedParameters::make(zero_stage, parameters.all(), mesh,
                                     {*kernels, device, arena, *stream});
  }

  void initialize() {
    for (Parameter* parameter : parameters.all()) {
      Tensor rows = host_tensor(parameter->dtype, parameter->shape);
      for (std::int64_t i = 0; i < rows.elements(); ++i)
        put(rows, i, value_number(parameter->name, i));
      shards->set_value(*parameter, rows, *stream);
    }
    shards->publish_values(*stream);
  }

  void contribute(Parameter& parameter, int micro_batch) {
    Tensor gradient = shards->gradient(parameter, *stream);
    if (!parameter.trainable) {
      EXPECT_FALSE(gradient.defined());
      return;
    }
    for (std::int64_t i = 0; i < gradient.elements(); ++i) {
      put(gradient, i,
          get(gradient, i) + gradient_number(mesh.world().rank(), micro_batch, parameter.name, i));
    }
    shards->contribute(parameter, *stream);
  }

  void step(int micro_batches) {
    shards->begin_step(micro_batches, *stream);
    for (int m = 0; m < micro_batches; ++m) {
      const std::vector<Parameter*> all = parameters.all();
      for (auto at = all.rbegin(); at != all.rend(); ++at) contribute(**at, m);
    }
    shards->finish_gradients(*stream);
  }

  static double get(const Tensor& tensor, std::int64_t i) {
    if (tensor.dtype() == DType::kF64) return tensor.data<double>()[i];
    if (tensor.dtype() == DType::kBF16) return to_float(tensor.data<BFloat16>()[i]);
    return tensor.data<float>()[i];
  }
  static void put(const Tensor& tensor, std::int64_t i, double value) {
    if (tensor.dtype() == DType::kF64)
      tensor.data<double>()[i] = value;
    else if (tensor.dtype() == DType::kBF16)
      tensor.data<BFloat16>()[i] = to_bfloat16(static_cast<float>(value));
    else
      tensor.data<float>()[i] = static_cast<float>(value);
  }

  HostDevice device;
  Arena arena{device, 1 << 20};
  Mesh mesh;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Kernels> kernels;
  ParameterList parameters;
  std::unique_ptr<ShardedParameters> shards;
};

MeshSizes mesh_sizes(int tensor, int data, int pipeline) {
  MeshSizes sizes;
  sizes[Axis::kTensor] = tensor;
  sizes[Axis::kData] = data;
  sizes[Axis::kPipeline] = pipeline;
  return sizes;
}

// The ranks whose contributions the gradient of `parameter` on this rank sums.
std::vector<int> contributors(const Mesh& mesh, const Parameter& parameter) {
  AxisSet set = axes(Axis::kData);
  if (parameter.placement.partial_axes() & axes(Axis::kTensor)) set |= axes(Axis::kTensor);
  if (parameter.tied_stages.size() > 1) set |= axes(Axis::kPipeline);
  return mesh.members(set);
}

double wanted_gradient(const Mesh& mesh, const Parameter& parameter, int micro_batches,
                       std::int64_t i) {
  double sum = 0;
  for (const int rank : contributors(mesh, parameter)) {
    for (int m = 0; m < micro_batches; ++m) sum += gradient_number(rank, m, parameter.name, i);
  }
  return sum;
}

// Elements of owned gradients that are not the exact sum.
std::int64_t wrong_gradients(Rank& rank, int micro_batches) {
  std::int64_t wrong = 0;
  for (const OwnedSpan& owned : rank.shards->owned()) {
    for (std::int64_t i = 0; i < owned.span.size; ++i) {
      const double want = wanted_gradient(rank.mesh, *owned.span.parameter, micro_batches,
                                          owned.span.parameter_offset + i);
      wrong += Rank::get(owned.gradient, i) != want;
    }
  }
  return wrong;
}

struct Case {
  int zero_stage;
  int data;
  int micro_batches;
};

class EveryStage : public testing::TestWithParam<Case> {};

TEST_P(EveryStage, SumsGradientsExactlyAndPublishesTheUpdate) {
  const auto [zero_stage, data, micro_batches] = GetParam();
  run_ranks(data, [&](World& world) {
    Rank rank(world, mesh_sizes(1, data, 1), kSpecs, zero_stage);
    rank.initialize();
    for (int step = 1; step <= 3; ++step) {
      rank.step(micro_batches);
      ASSERT_EQ(wrong_gradients(rank, micro_batches), 0) << "step " << step;
      for (const OwnedSpan& owned : rank.shards->owned()) {
        for (std::int64_t i = 0; i < owned.span.size; ++i) {
          Rank::put(owned.value, i, Rank::get(owned.value, i) - Rank::get(owned.gradient, i));
        }
      }
      const std::uint64_t version = rank.parameters.all()[0]->version;
      rank.shards->publish_values(*rank.stream);
      EXPECT_GT(rank.parameters.all()[0]->version, version);
      for (Parameter* parameter : rank.parameters.all()) {
        const Tensor whole = rank.shards->whole_value(*parameter, *rank.stream);
        ASSERT_EQ(whole.shape(), parameter->shape);
        const WeightUse use = rank.shards->acquire(*parameter, WeightForm::kRows, *rank.stream);
        for (std::int64_t i = 0; i < whole.elements(); ++i) {
          double want = value_number(parameter->name, i);
          if (parameter->trainable)
            want -= step * wanted_gradient(rank.mesh, *parameter, micro_batches, i);
          ASSERT_EQ(Rank::get(whole, i), want) << parameter->name << " " << i;
          ASSERT_EQ(Rank::get(use.rows(), i), want) << parameter->name << " " << i;
        }
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(DataParallel, EveryStage,
                         testing::Values(Case{0, 1, 1}, Case{0, 2, 3}, Case{0, 4, 1}, Case{1, 1, 2},
                                         Case{1, 2, 3}, Case{1, 4, 2}, Case{2, 1, 2}, Case{2, 2, 3},
                                         Case{2, 4, 2}, Case{3, 1, 2}, Case{3, 2, 3},
                                         Case{3, 4, 2}),
                         [](const auto& info) {
                           return "Zero" + std::to_string(info.param.zero_stage) + "Over" +
                                  std::to_string(info.param.data) + "With" +
                                  std::to_string(info.param.micro_batches);
                         });

TEST(DataParallel, OwnedSpansCoverEveryElementOnce) {
  for (const int zero_stage : {1, 2, 3}) {
    std::vector<std::vector<ShardSpan>> spans(4);
    std::int64_t total = 0;
    run_ranks(4, [&](World& world) {
      Rank rank(world, mesh_sizes(1, 4, 1), kSpecs, zero_stage);
      for (const OwnedSpan& owned : rank.shards->owned()) spans[world.rank()].push_back(owned.span);
      if (world.rank() == 0) {
        for (const ShardUnit& unit : rank.shards->units()) {
          for (const UnitEntry& entry : unit.entries) total += entry.size;
        }
      }
    });
    std::int64_t owned = 0;
    for (const auto& of_rank : spans) {
      for (const ShardSpan& span : of_rank) owned += span.size;
    }
    EXPECT_EQ(owned, total);
  }
}

// Tensor 2 x data 2 x pipeline 2: norms fed by split tokens, and an embedding on both stages, among
// other parameters there.
const std::vector<Spec> kFirstStage = {{"tied.a", {5 * kBlock}, DType::kF32, true, false, {0, 1}},
                                       {"norm.b", {64}, DType::kF32, true, true},
                                       {"up.e", {64, 64}}};
const std::vector<Spec> kLastStage = {{"up.long.e", {kBlock * 2}},
                                      {"norm.b", {64}, DType::kF32, true, true},
                                      {"tied.a", {5 * kBlock}, DType::kF32, true, false, {0, 1}}};

TEST(DataParallel, SumsOverTensorAndTiedStagesFollowFromThePlacement) {
  for (const int zero_stage : {0, 1, 2, 3}) {
    run_ranks(8, [&](World& world) {
      Rank rank(world, mesh_sizes(2, 2, 2), world.rank() < 4 ? kFirstStage : kLastStage,
                zero_stage);
      rank.step(2);
      EXPECT_EQ(wrong_gradients(rank, 2), 0) << "stage " << zero_stage << ", rank " << world.rank();
    });
  }
}

TEST(DataParallel, ALostReductionShows) {
  const std::vector<std::pair<std::string, std::string>> losses = {
      {"context+expert+data gradients", "all-reduce"},
      {"context+expert+data gradients", "reduce-scatter"},
      {"tensor", "all-reduce"},
      {"stages 0 1", "all-reduce"}};
  int tried = 0;
  const std::vector<int> stages = test::sampled(std::vector{0, 1, 2, 3}, 2, 1);
  for (const int zero_stage : stages) {
    for (const auto& [group, kind] : losses) {
      int lost = 0;
      ThreadWorldState state;
      state.drop = [&](const std::string& in, const std::string& what) {
        if (lost > 0 || in != group || what != kind) return false;
        return ++lost == 1;
      };
      std::vector<std::int64_t> wrong(8);
      run_ranks(
          8,
          [&](World& world) {
            Rank rank(world, mesh_sizes(2, 2, 2), world.rank() < 4 ? kFirstStage : kLastStage,
                      zero_stage);
            rank.step(1);
            wrong[world.rank()] = wrong_gradients(rank, 1);
          },
          &state);
      if (lost == 0) continue;  // this stage has no such reduction
      ++tried;
      std::int64_t total = 0;
      for (const std::int64_t one : wrong) total += one;
      EXPECT_GT(total, 0) << "stage " << zero_stage << " without " << kind << " over " << group;
    }
  }
  EXPECT_EQ(tried, 3 * std::ssize(stages));
}

// Ranks run at their own pace: the order of what they start in a group may not depend on what is
// complete. Ranks out of step fail in ThreadWorld.
TEST(DataParallel, StartsCollectivesInOneOrderAtAnyPace) {
  const std::vector<Spec> specs = {{"a", {64}, DType::kF32, true, true},
                                   {"b", {700}},
                                   {"c", {64}, DType::kF32, true, true},
                                   {"d", {64}, DType::kF32, true, true},
                                   {"e", {9}}};
  run_ranks(4, [&](World& world) {
    Rank rank(world, mesh_sizes(2, 2, 1), specs, 3);
    rank.initialize();
    const std::vector<Parameter*> all = rank.parameters.all();
    std::uint64_t pace = 12345 + 77 * world.rank();
    for (int step = 0; step < 20; ++step) {
      rank.shards->begin_step(4, *rank.stream);
      for (int m = 0; m < 4; ++m) {
        for (std::size_t i = all.size(); i-- > 0;) {
          pace = pace * 6364136223846793005ULL + 1442695040888963407ULL;
          std::this_thread::sleep_for(std::chrono::microseconds((pace >> 33) % 200));
          const WeightUse use =
              rank.shards->acquire(*all[(i * 3 + m) % all.size()], WeightForm::kRows, *rank.stream);
          rank.contribute(*all[i], m);
        }
      }
      rank.shards->finish_gradients(*rank.stream);
      ASSERT_EQ(wrong_gradients(rank, 4), 0) << "step " << step;
    }
  });
}

TEST(DataParallel, MixedDtypesPublishEachInItsBuffer) {
  const std::vector<Spec> specs = {{"embedding.a", {2 * kBlock}, DType::kBF16},
                                   {"norm.b", {100}},
                                   {"up.c", {kBlock + 3}, DType::kBF16},
                                   {"norm.d", {3}},
                                   {"up.e", {kBlock}, DType::kBF16}};
  for (const int zero_stage : {0, 1, 2, 3}) {
    run_ranks(3, [&](World& world) {
      Rank rank(world, mesh_sizes(1, 3, 1), specs, zero_stage);
      rank.initialize();
      rank.step(1);
      EXPECT_EQ(wrong_gradients(rank, 1), 0);
      for (const OwnedSpan& owned : rank.shards->owned()) {
        EXPECT_EQ(owned.value.dtype(), owned.span.parameter->dtype);
        for (std::int64_t i = 0; i < owned.span.size; ++i) Rank::put(owned.value, i, world.rank());
      }
      rank.shards->publish_values(*rank.stream);
      for (const ShardUnit& unit : rank.shards->units()) {
        for (const UnitEntry& entry : unit.entries) {
          const Tensor whole = rank.shards->whole_value(*entry.parameter, *rank.stream);
          for (std::int64_t i = 0; i < entry.size; ++i) {
            const std::int64_t owner =
                zero_stage == 0 ? world.rank() : (entry.begin + i) / unit.part_size();
            ASSERT_EQ(Rank::get(whole, i), static_cast<double>(owner))
                << entry.parameter->name << " " << i;
          }
        }
      }
    });
  }
}

TEST(DataParallel, DoubleParametersHaveDoubleGradients) {
  for (const int zero_stage : {0, 1, 2, 3}) {
    run_ranks(2, [&](World& world) {
      Rank rank(world, mesh_sizes(1, 2, 1),
                {{"a", {100}, DType::kF64}, {"b", {kBlock}, DType::kF64}}, zero_stage);
      rank.step(2);
      EXPECT_EQ(wrong_gradients(rank, 2), 0);
      for (const OwnedSpan& owned : rank.shards->owned())
        EXPECT_EQ(owned.gradient.dtype(), DType::kF64);
    });
  }
}

TEST(DataParallel, HoldsTheBytesOfItsStage) {
  // 8 blocks of equal size: every shard of 4 holds two of them.
  std::vector<Spec> specs;
  for (int i = 0; i < 8; ++i) specs.push_back({"p" + std::to_string(i), {kBlock}, DType::kBF16});
  const std::int64_t elements = 8 * kBlock;
  for (const int zero_stage : {0, 1, 2, 3}) {
    run_ranks(4, [&](World& world) {
      Rank rank(world, mesh_sizes(1, 4, 1), specs, zero_stage);
      const auto bytes = [&](MemoryKind kind) {
        return rank.arena.counts().in_use_bytes[static_cast<std::size_t>(kind)];
      };
      const std::int64_t values = zero_stage == 3 ? 2 * elements / 4 : 2 * elements;
      const std::int64_t gradients = zero_stage >= 2 ? 4 * elements / 4 : 4 * elements;
      EXPECT_EQ(bytes(MemoryKind::kParameters), values);
      EXPECT_EQ(bytes(MemoryKind::kGradients), gradients);
      rank.step(2);
      EXPECT_EQ(bytes(MemoryKind::kParameters), values);
      EXPECT_EQ(bytes(MemoryKind::kGradients), gradients) << "temporaries are left";
      if (zero_stage >= 2) {
        // Stage 2: one bucket of everything, for each of two micro-batches. Stage 3: a unit for
        // each parameter.
        const std::int64_t unit = zero_stage == 2 ? 4 * elements : 4 * kBlock;
        const std::int64_t most =
            zero_stage == 2 ? 2 * unit : (ScatteredGradients::kMaxOnTheWay + 1) * unit;
        EXPECT_LE(rank.arena.counts().peak_bytes[static_cast<std::size_t>(MemoryKind::kGradients)],
                  gradients + most);
      }
    });
  }
}

TEST(BucketedGradients, StartInOneOrderWhateverTheOrderOfCompletion) {
  run_ranks(2, [&](World& world) {
    Rank rank(world, mesh_sizes(1, 2, 1), kSpecs, 0);
    std::vector<Parameter*> trainable;
    for (Parameter* parameter : rank.parameters.all()) {
      if (parameter->trainable) trainable.push_back(parameter);
    }
    const ReductionGroups groups = make_reduction_groups(trainable, rank.mesh);
    const std::vector<ShardUnit> units = make_shard_units(trainable, groups, {.sharded = false});
    BucketedGradients gradients(units, groups, rank.device, rank.arena, *rank.stream);
    EXPECT_EQ(units.size(), trainable.size());
    gradients.begin_step(1, *rank.stream);
    if (world.rank() == 1) std::ranges::reverse(trainable);
    for (Parameter* parameter : trainable) {
      const Tensor gradient = gradients.gradient(*parameter, *rank.stream);
      for (std::int64_t i = 0; i < parameter->elements(); ++i) {
        Rank::put(gradient, i, gradient_number(world.rank(), 0, parameter->name, i));
      }
      gradients.contribute(*parameter, *rank.stream);
    }
    gradients.finish(*rank.stream);
    for (Parameter* parameter : trainable) {
      for (std::int64_t i = 0; i < parameter->elements(); ++i) {
        ASSERT_EQ(Rank::get(parameter->gradient, i), wanted_gradient(rank.mesh, *parameter, 1, i));
      }
    }
    for (Parameter* parameter : trainable) parameter->gradient = {};
  });
}

TEST(BucketedGradients, ReduceWhileTheRestIsComputed) {
  run_ranks(2, [&](World& world) {
    Rank rank(world, mesh_sizes(1, 2, 1), kSpecs, 0);
    const std::vector<Parameter*> trainable = {rank.parameters.find("up.e"),
                                               rank.parameters.find("head.ff")};
    const ReductionGroups groups = make_reduction_groups(trainable, rank.mesh);
    const std::vector<ShardUnit> units = make_shard_units(trainable, groups, {.sharded = false});
    BucketedGradients gradients(units, groups, rank.device, rank.arena, *rank.stream);
    gradients.begin_step(2, *rank.stream);
    const auto started = [&] { return units[0].group->gradients->traffic().collectives; };
    const std::int64_t before = started();
    for (Parameter* parameter : trainable) gradients.gradient(*parameter, *rank.stream);
    gradients.contribute(*trainable[1], *rank.stream);
    EXPECT_EQ(started(), before) << "one of two contributions";
    gradients.contribute(*trainable[1], *rank.stream);
    EXPECT_EQ(started(), before + 1);
    gradients.finish(*rank.stream);
    EXPECT_EQ(started(), before + 2);
    for (Parameter* parameter : trainable) parameter->gradient = {};
  });
}

// Also the padding, where a reduction may have left something.
TEST(BucketedGradients, AreZeroWhereNobodyAdds) {
  for (const bool sharded : {false, true}) {
    run_ranks(2, [&](World& world) {
      Rank rank(world, mesh_sizes(1, 2, 1), kSpecs, 0);
      std::vector<Parameter*> trainable;
      for (Parameter* parameter : rank.parameters.all()) {
        if (parameter->trainable) trainable.push_back(parameter);
      }
      const ReductionGroups groups = make_reduction_groups(trainable, rank.mesh);
      const std::vector<ShardUnit> units =
          make_shard_units(trainable, groups, {.bucket_bytes = kBucketBytes, .sharded = sharded});
      BucketedGradients gradients(units, groups, rank.device, rank.arena, *rank.stream);
      const auto part_of = [&](std::size_t unit) {
        return gradients.part(
            {.unit = unit, .unit_begin = units[unit].own_begin(), .size = units[unit].part_size()});
      };
      // A step leaves something in every element; in the next one only one parameter gets some.
      for (std::size_t unit = 0; unit < units.size(); ++unit) {
        const Tensor all = gradients.part({.unit = unit, .size = units[unit].size});
        for (std::int64_t i = 0; i < all.elements(); ++i) Rank::put(all, i, 7);
      }
      gradients.begin_step(1, *rank.stream);
      Parameter& one = *trainable.front();
      const Tensor gradient = gradients.gradient(one, *rank.stream);
      EXPECT_EQ(Rank::get(gradient, 0), 0);
      Rank::put(gradient, 0, 3);
      EXPECT_EQ(Rank::get(gradients.gradient(one, *rank.stream), 0), 3) << "zeroed once";
      gradients.contribute(one, *rank.stream);
      gradients.finish(*rank.stream);
      double sum = 0;
      for (std::size_t unit = 0; unit < units.size(); ++unit) {
        const Tensor own = part_of(unit);
        for (std::int64_t i = 0; i < own.elements(); ++i) sum += std::abs(Rank::get(own, i));
      }
      EXPECT_EQ(sum, sharded && world.rank() != 0 ? 0 : 6);
      for (Parameter* parameter : trainable) parameter->gradient = {};
    });
  }
}

// A unit whose parameters are summed over tensor ranks first is reduced over data right away: both
// collectives are started when the last contribution comes, and the second follows the first.
TEST(BucketedGradients, ChainSumsWithoutWaitingForTheFirst) {
  run_ranks(4, [&](World& world) {
    Rank rank(world, mesh_sizes(2, 2, 1), {{"norm.b", {64}, DType::kF32, true, true}}, 1);
    Parameter& parameter = *rank.parameters.find("norm.b");
    Communicator& data = *rank.shards->units()[0].group->gradients;
    for (int step = 0; step < 3; ++step) {
      if (world.rank() == step) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      rank.shards->begin_step(1, *rank.stream);
      const std::int64_t before = data.traffic().collectives;
      rank.contribute(parameter, 0);
      EXPECT_EQ(data.traffic().collectives, before + 1);
      rank.shards->finish_gradients(*rank.stream);
      ASSERT_EQ(wrong_gradients(rank, 1), 0) << "step " << step;
    }
  });
}

TEST(PackedWeights, OfFrozenParametersArePackedOnce) {
  run_ranks(1, [&](World& world) {
    Rank rank(world, mesh_sizes(1, 1, 1), kSpecs, 0);
    rank.initialize();
    Parameter& frozen = *rank.parameters.find("frozen.d");
    Parameter& trained = *rank.parameters.find("up.e");
    const std::uint64_t before = frozen.version;
    const std::uint64_t before_trained = trained.version;
    rank.step(1);
    rank.shards->publish_values(*rank.stream);
    EXPECT_EQ(frozen.version, before);
    EXPECT_GT(trained.version, before_trained);
    rank.shards->set_value(frozen, host_tensor(frozen.dtype, frozen.shape), *rank.stream);
    EXPECT_GT(frozen.version, before) << "loaded";
  });
}

TEST(GatheredWeights, PrefetchesWhatTheFirstStepRecorded) {
  run_ranks(2, [&](World& world) {
    Rank rank(world, mesh_sizes(1, 2, 1), kSpecs, 3);
    rank.initialize();
    const std::vector<Parameter*> order = rank.parameters.all();
    Communicator& data = *rank.shards->units()[0].group->values;
    const auto in_use = [&] {
      return rank.arena.counts().in_use_bytes[static_cast<std::size_t>(MemoryKind::kCommunication)];
    };
    for (int step = 0; step < 3; ++step) {
      rank.shards->begin_step(0, *rank.stream);
      for (std::size_t i = 0; i < order.size(); ++i) {
        const std::int64_t before = data.traffic().collectives;
        const WeightUse use = rank.shards->acquire(*order[i], WeightForm::kForward, *rank.stream);
        const std::int64_t started = data.traffic().collectives - before;
        std::int64_t want = 1;  // the first step gathers each use by itself
        if (step > 0 && i == 0)
          want = 1 + static_cast<std::int64_t>(GatheredWeights::kPrefetchDepth);
        if (step > 0 && i > 0) want = i + GatheredWeights::kPrefetchDepth < order.size() ? 1 : 0;
        EXPECT_EQ(started, want) << "step " << step << ", use " << i;
        EXPECT_GE(in_use(), order[i]->elements() * 4);
        for (std::int64_t k = 0; k < order[i]->elements(); ++k) {
          ASSERT_EQ(Rank::get(use.rows(), k), value_number(order[i]->name, k));
        }
      }
      data.barrier();
      EXPECT_EQ(in_use(), 0) << "gathered rows are left";
      rank.shards->finish_gradients(*rank.stream);
    }
    // An order that was not recorded gathers by itself.
    for (const Parameter* one : {order[3], order[0], order[5]}) {
      const WeightUse use =
          rank.shards->acquire(const_cast<Parameter&>(*one), WeightForm::kRows, *rank.stream);
      ASSERT_EQ(Rank::get(use.rows(), 5), value_number(one->name, 5));
    }
    rank.shards->publish_values(*rank.stream);
    data.barrier();
    EXPECT_EQ(in_use(), 0);
  });
}

}  // namespace
}  // namespace piton
