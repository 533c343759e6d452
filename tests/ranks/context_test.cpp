// ranks: 2 4
// Samples whose rows are divided over ranks give the losses, gradients, weights and checkpoints of
// one process: GPT-2, LLaMA with grouped queries, and models with a window and ALiBi, with sinks,
// and with the gated delta rule, with dropout, under every other kind of parallelism.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "api/planning.h"
#include "ranks/run_bits.h"
#include "ranks/setting.h"
#include "ranks/state_spaces.h"
#include "saved_runs.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::ranks::context_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;
using test::with_context;

constexpr int kSteps = 6;

ModelConfig small(const std::string& name) {
  const bool alibi = name == "alibi";
  const bool sinks = name == "sinks";
  const bool states = name == "states";
  const bool mamba = name.starts_with("mamba");
  const bool growth = name == "growing queries";
  ModelConfig model =
      preset(alibi                                                          ? "gpt2-tiny"
             : sinks || states || mamba || growth || name == "convolutions" ? "llama-tiny"
                                                                            : name);
  if (growth) {
    model.rotary_scaling = {.kind = RotaryScaling::Kind::kYarn,
                            .factor = 4,
                            .original_positions = 4,
                            .query_growth = 0.5};
  }
  if (name == "convolutions") model.short_convolution = small_convolutions({1, 3});
  if (mamba) {
    model.state_space = small_state_spaces(name == "mamba, groups" ? 4 : 1, {1, 3});
  }
  if (states) {
    model.delta = {.attention_every = 2,
                   .key_heads = 4,
                   .value_heads = 8,
                   .key_size = 6,
                   .value_size = 5,
                   .width = 3};
    model.gains_from_one = model.output_gate = true;
  }
  if (sinks) {
    model.softmax = SoftmaxKind::kLearnable;
    model.window_before = 9;
    model.full_attention_every = 2;
  }
  if (alibi) {
    model.positions = PositionKind::kAlibi;
    model.window_before = 9;
  }
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

// All context ranks, tensor x context x data x pipeline.
RunLayout layout(std::string name, const MeshSizes& sizes, int context) {
  return {.name = std::move(name), .mesh = with_context(sizes, context)};
}

std::vector<RunLayout> layouts(int ranks, ContextExchange exchange) {
  std::vector<RunLayout> all;
  const auto add = [&](RunLayout one) -> RunLayout& {
    one.context = {{exchange}};
    return all.emplace_back(std::move(one));
  };
  if (ranks == 2) {
    add(layout("CP 2", mesh(1, 1, 1), 2));
    add(layout("CP 2, recompute", mesh(1, 1, 1), 2)).recompute = true;
    add(layout("CP 2, attention again", mesh(1, 1, 1), 2)).rules = {
        RecomputeGranularity::kSelective};
    add(layout("CP 2, ZeRO-1", mesh(1, 1, 1), 2)).zero = 1;
    add(layout("CP 2, ZeRO-2", mesh(1, 1, 1), 2)).zero = 2;
    RunLayout& zero3 = add(layout("CP 2, ZeRO-3, recompute", mesh(1, 1, 1), 2));
    zero3.zero = 3;
    zero3.recompute = true;
    if (exchange == ContextExchange::kRing) return all;
    add(layout("CP 2, 2 slices", mesh(1, 1, 1), 2)).context.slices = 2;
    RunLayout& again = add(layout("CP 2, 2 slices, attention again", mesh(1, 1, 1), 2));
    again.context.slices = 2;
    again.rules = {RecomputeGranularity::kSelective};
    return all;
  }
  add(layout("CP 4", mesh(1, 1, 1), 4));
  RunLayout& tensor = add(layout("TP 2 x CP 2 + SP", mesh(2, 1, 1), 2));
  tensor.sequence_parallel = true;
  RunLayout& stages = add(layout("CP 2 x PP 2, ZB-H1, recompute", mesh(1, 1, 2), 2));
  stages.schedule = {ScheduleKind::kZeroBubbleH1};
  stages.recompute = true;
  add(layout("CP 2 x PP 2, interleaved", mesh(1, 1, 2), 2)).schedule = {
      .kind = ScheduleKind::kInterleaved, .chunks = 2};
  add(layout("CP 2 x DP 2, ZeRO-1", mesh(1, 2, 1), 2)).zero = 1;
  add(layout("CP 2 x DP 2, ZeRO-3", mesh(1, 2, 1), 2)).zero = 3;
  if (exchange == ContextExchange::kRing) return all;
  RunLayout& sliced = add(layout("CP 2 x PP 2, ZB-H1, 2 slices", mesh(1, 1, 2), 2));
  sliced.schedule = {ScheduleKind::kZeroBubbleH1};
  sliced.context.slices = 2;
  return all;
}

// Whether heads travel in some layer.
bool has_slices(const RunLayout& layout) {
  const int c = layout.mesh[Axis::kContext];
  return std::ranges::any_of(layout.context.exchanges, [&](ContextExchange exchange) {
    return exchange == ContextExchange::kGather || layout.context.heads_of(exchange, c) > 1;
  });
}

// Of neighbors that exchange heads, and rings of the others: also with one rank in one of these,
// and in some of the layers.
std::vector<RunLayout> hybrids(int ranks, const ModelConfig& model) {
  std::vector<RunLayout> all;
  const auto add = [&](const std::string& name, int context, int heads) -> RunLayout& {
    RunLayout one = layout(fmt::format("CP {}{}, heads of {}", context, name, heads),
                           mesh(1, 1, ranks / context), context);
    one.context = {{ContextExchange::kHeadsAndRing}, heads};
    return all.emplace_back(std::move(one));
  };
  const auto mixed = [&](RunLayout& one, const std::vector<ContextExchange>& exchanges) {
    one.name += ", others in other layers";
    one.context.exchanges.clear();
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
      one.context.exchanges.push_back(
          exchanges[static_cast<std::size_t>(layer) % exchanges.size()]);
  };
  using enum ContextExchange;
  if (ranks == 2) {
    add("", 2, 1);
    add(", recompute", 2, 2).recompute = true;
    mixed(add("", 2, 1), {kHeads, kGather, kRing});
    return all;
  }
  add("", 4, 2);
  add(", attention again", 4, 2).rules = {RecomputeGranularity::kSelective};
  RunLayout& zero3 = add(", ZeRO-3, recompute", 4, 2);
  zero3.zero = 3;
  zero3.recompute = true;
  mixed(add("", 4, 2), {kHeadsAndRing, kRing, kGather});
  RunLayout& stages = add(" x PP 2, ZB-H1", 2, 2);
  stages.schedule = {ScheduleKind::kZeroBubbleH1};
  return all;
}

// Heads are divided, so there have to be enough of them.
bool fits(const RunLayout& layout, const ModelConfig& model) {
  const int c = layout.mesh[Axis::kContext];
  return std::ranges::all_of(layout.context.exchanges, [&](ContextExchange exchange) {
    return model.groups / layout.mesh[Axis::kTensor] % layout.context.heads_of(exchange, c) == 0;
  });
}

// At night all; by day a third, which another `turn` continues.
std::vector<RunLayout> layouts_of(const ModelConfig& model, std::size_t turn) {
  std::vector<RunLayout> all;
  const auto add = [&](std::vector<RunLayout> some, const char* name) {
    for (RunLayout& one : some) {
      one.name += name;
      if (fits(one, model)) all.push_back(std::move(one));
    }
  };
  const int ranks = ranks::world().size();
  add(layouts(ranks, ContextExchange::kRing), ", ring");
  add(layouts(ranks, ContextExchange::kHeads), ", all-to-all");
  add(layouts(ranks, ContextExchange::kGather), ", gathered");
  add(hybrids(ranks, model), "");
  return test::sampled(all, 3, turn);
}

// Each model meets another third.
std::size_t turn_of(const std::string& model) {
  return model == "gpt2-tiny" ? 0 : model == "llama-tiny" || model == "sinks" ? 1 : 2;
}

class ContextParallel : public testing::TestWithParam<const char*> {};

TEST_P(ContextParallel, GivesTheLossesOfOneProcess) {
  const ModelConfig model = small(GetParam());
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun one(*world, {.name = "one process"}, model);
  const std::vector<double> alone = one.losses(kSteps);
  ASSERT_LT(alone.back(), alone.front());
  for (const RunLayout& layout : layouts_of(model, turn_of(GetParam()))) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    const std::vector<double> losses = run.losses(kSteps);
    for (int step = 0; step < kSteps; ++step)
      EXPECT_NEAR(losses[step], alone[step], 1e-5 * alone[step]) << "step " << step;
  }
}

TEST_P(ContextParallel, GivesTheGradientsOfOneProcess) {
  const ModelConfig model = small(GetParam());
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun one(*world, {.name = "one process"}, model);
  const auto alone = one.gradients();
  for (const RunLayout& layout : layouts_of(model, turn_of(GetParam()))) {
    const bool whole = layout.mesh[Axis::kTensor] == 1 && layout.mesh[Axis::kPipeline] == 1;
    if (!whole || layout.zero > 0) continue;  // parts of the gradients are on other ranks
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    EXPECT_LT(test::largest_difference(run.gradients(), alone), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ContextParallel,
                         testing::Values("gpt2-tiny", "llama-tiny", "alibi", "sinks", "states",
                                         "mamba", "mamba, groups", "convolutions",
                                         "growing queries"));

// Heads that travel in slices, some while others are attended to: the losses, norms of gradients
// and weights of heads that travel at once, to the bit. Slices are of equal size or not.
TEST_P(ContextParallel, GivesTheBitsOfWholeExchangesInSlices) {
  ModelConfig model = small(GetParam());
  // Their exchanges have no slices, and attention is that of others.
  if (model.state_space || model.short_convolution) return;
  if (model.heads == model.groups) {
    model.heads = model.groups = 12;
  } else {
    model.heads = 24;
    model.groups = 12;
  }
  model.head_size = 6;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    model.dtype = dtype;
    for (RunLayout layout : layouts_of(model, turn_of(GetParam()) + 1)) {
      if (!has_slices(layout)) continue;
      SCOPED_TRACE(layout.name + (dtype == DType::kBF16 ? ", bf16" : ""));
      const auto bits = [&](int slices) {
        layout.context.slices = slices;
        return ranks::bits_of(layout, model);
      };
      const TrafficCounts start = ranks::world().traffic();
      const auto whole = bits(1);
      const TrafficCounts middle = ranks::world().traffic();
      for (const int slices : {2, 8}) {
        const TrafficCounts before = ranks::world().traffic();
        const auto sliced = bits(slices);
        const TrafficCounts end = ranks::world().traffic();
        EXPECT_EQ(sliced.reports, whole.reports) << slices;
        EXPECT_TRUE(sliced.pieces == whole.pieces) << slices;
        // Stages of "states" may have no attention.
        if (layout.mesh[Axis::kPipeline] == 1) {
          EXPECT_GT(end.collectives - before.collectives, middle.collectives - start.collectives);
        }
        EXPECT_EQ(end.all_to_all_bytes - before.all_to_all_bytes,
                  middle.all_to_all_bytes - start.all_to_all_bytes);
      }
    }
  }
}

// In bf16 rows are rounded in other places than on one process, as under other layouts.
TEST(ContextParallelHalf, IsNearOneProcess) {
  ModelConfig model = small("llama-tiny");
  model.dtype = DType::kBF16;
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun one(*world, {.name = "one process"}, model);
  const std::vector<double> alone = one.losses(kSteps);
  for (const RunLayout& layout : layouts_of(model, 0)) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    const std::vector<double> losses = run.losses(kSteps);
    for (int step = 0; step < kSteps; ++step)
      EXPECT_NEAR(losses[step], alone[step], 5e-3 * alone[step]) << "step " << step;
  }
}

TEST(ContextParallelEvaluation, GivesTheLossOfOneProcess) {
  const ModelConfig model = small("llama-tiny");
  const auto loss_of = [&](TrainingRun& run) {
    const Mesh& mesh = run.session().mesh();
    const auto batches =
        test::batches(0, mesh.coordinate(Axis::kData), mesh.size(Axis::kData), model.vocabulary,
                      std::vector<std::int64_t>(4 / mesh.size(Axis::kData), 2));
    const Session::Evaluation found = run.session().evaluate(batches);
    return found.loss_sum / found.loss_tokens;
  };
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun one(*world, {.name = "one process"}, model);
  const double alone = loss_of(one);
  for (const RunLayout& layout : layouts_of(model, 1)) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    EXPECT_NEAR(loss_of(run), alone, 1e-6 * alone);
  }
}

TEST(ContextParallelCheckpoints, AreThoseOfOneProcess) {
  const ModelConfig model = small("gpt2-tiny");
  const std::filesystem::path from_one = ranks::save_from_one_process(model, "context");
  for (const RunLayout& layout : layouts_of(model, 2)) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    const std::filesystem::path saved = ranks::expect_saved_again(run, from_one);
    const double next = run.step().loss;
    // And resumed under the same layout: the same bits.
    TrainingRun again(ranks::world(), layout, model);
    EXPECT_EQ(ranks::next_loss(again, saved), next);
    EXPECT_NEAR(ranks::next_loss_of_one_process(model, saved), next, 1e-6 * next);
    ranks::everyone().barrier();
  }
}

// The bytes of layer `layer` in a step, by the tables of docs/parallelism.md.
void add_wanted(TrafficCounts& wanted, const ModelConfig& model, const RunLayout& layout,
                std::int64_t layer) {
  // Of each head, b s / c elements.
  const std::int64_t c = layout.mesh[Axis::kContext];
  const std::int64_t rows = test::kSamples * test::kSequence / c;
  if (model.has_states(layer) && model.state_space) {
    // Values, steps and the output; of keys and queries, those of one group to each rank.
    const StateSpaceFacts& facts = *model.state_space;
    const std::int64_t groups = facts.groups == 1 ? c : facts.groups;
    const std::int64_t width = 2 * facts.values() + facts.heads + 2 * groups * facts.state_size;
    wanted.all_to_all_bytes += rows * 2 * width * (c - 1) / c * 4;
    return;
  }
  if (model.has_states(layer) && model.short_convolution) {
    // Products before the convolution and sums after it, and their gradients.
    wanted.all_to_all_bytes += rows * 2 * 2 * model.hidden * (c - 1) / c * 4;
    return;
  }
  if (model.has_states(layer)) {
    // q, k, v, decays, strengths and the output, and their gradients.
    const DeltaFacts& facts = *model.delta;
    const std::int64_t width = 2 * facts.key_heads * facts.key_size +
                               2 * facts.value_heads * facts.value_size + 2 * facts.value_heads;
    wanted.all_to_all_bytes += rows * 2 * width * (c - 1) / c * 4;
    return;
  }
  // Neighbors, of which u exchange heads, send q, k, v and the output, and their gradients; a ring
  // of r sends k and v, r - 1 times forward and back, and r times their gradients, of fp32 as the
  // rest; gathers are of k and v, forward and back, and their sums of gradients.
  const std::int64_t q = model.heads * model.head_size, k = model.groups * model.head_size;
  const ContextExchange exchange = layout.context.of_layer(layer);
  const std::int64_t u = layout.context.heads_of(exchange, static_cast<int>(c));
  const std::int64_t r = c / u;
  const bool again = layout.rules.granularity == RecomputeGranularity::kSelective;
  wanted.all_to_all_bytes += rows * 2 * (2 * q + 2 * k) * (u - 1) / u * 4;
  if (exchange == ContextExchange::kGather) {
    wanted.all_gather_bytes += 2 * rows * 2 * k * (c - 1) * 4;
    wanted.reduce_scatter_bytes += rows * 2 * k * (c - 1) * 4;
  } else if (r > 1) {
    wanted.point_to_point_bytes += rows * 2 * k * ((again ? 3 : 2) * (r - 1) + r) * 4;
  }
}

class ContextParallelPlan : public testing::TestWithParam<const char*> {};

TEST_P(ContextParallelPlan, PredictsMemoryAndBytesOfEveryRank) {
  const ModelConfig model = small(GetParam());
  for (const RunLayout& layout : layouts_of(model, 0)) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    run.losses(2);
    const TrafficCounts before = ranks::world().traffic();
    run.step();
    TrafficCounts sent = ranks::world().traffic();
    sent.all_to_all_bytes -= before.all_to_all_bytes;
    sent.point_to_point_bytes -= before.point_to_point_bytes;
    sent.all_gather_bytes -= before.all_gather_bytes;
    sent.reduce_scatter_bytes -= before.reduce_scatter_bytes;
    RunPlan plan{.mesh = layout.mesh,
                 .sequence = test::kSequence,
                 .micro_batch = layout.micro,
                 .global_batch = test::kSamples,
                 .micro_batches = run.session().settings().micro_batches,
                 .session = run.session().settings()};
    const RankEstimate planned =
        estimate_layout(plan, run.machine())[static_cast<std::size_t>(ranks::world().rank())];
    EXPECT_EQ(planned.traffic.all_to_all_bytes, sent.all_to_all_bytes);
    EXPECT_EQ(planned.traffic.point_to_point_bytes, sent.point_to_point_bytes);
    EXPECT_EQ(planned.traffic.all_gather_bytes, sent.all_gather_bytes);
    EXPECT_EQ(planned.traffic.reduce_scatter_bytes, sent.reduce_scatter_bytes);
    const auto counted = static_cast<double>(run.arena().counts().peak_total_bytes);
    EXPECT_NEAR(static_cast<double>(planned.memory.peak_total_bytes), counted, 0.05 * counted);
    if (layout.mesh[Axis::kContext] != ranks::world().size() || layout.recompute) continue;
    TrafficCounts wanted;
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
      add_wanted(wanted, model, layout, layer);
    EXPECT_EQ(sent.all_to_all_bytes, wanted.all_to_all_bytes);
    EXPECT_EQ(sent.point_to_point_bytes, wanted.point_to_point_bytes);
    if (layout.zero > 0) continue;  // other gathers and sums, of weights and their gradients
    EXPECT_EQ(sent.all_gather_bytes, wanted.all_gather_bytes);
    EXPECT_EQ(sent.reduce_scatter_bytes, wanted.reduce_scatter_bytes);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ContextParallelPlan,
                         testing::Values("gpt2-tiny", "states", "mamba"));

// A step gets the same addresses as the one before, whatever the pace of the ranks.
TEST(ContextParallelMemory, OfStep3IsAtTheAddressesOfStep6) {
  using Requests = std::vector<std::pair<const std::byte*, std::int64_t>>;
  const ModelConfig model = small("gpt2-tiny");
  for (const RunLayout& layout : layouts_of(model, 1)) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    Requests third, last;
    Requests* seen = nullptr;
    run.arena().observe([&](const std::byte* data, std::int64_t bytes) {
      if (seen != nullptr) seen->emplace_back(data, bytes);
    });
    std::uint64_t pace = 5 + 77 * static_cast<std::uint64_t>(ranks::world().rank());
    run.session().pipeline().observer = [&](const Step&) {
      pace = pace * 6364136223846793005ULL + 1442695040888963407ULL;
      std::this_thread::sleep_for(std::chrono::microseconds((pace >> 33) % 2000));
    };
    for (int step = 1; step <= 6; ++step) {
      seen = step == 3 ? &third : step == 6 ? &last : nullptr;
      run.step();
    }
    run.arena().observe(nullptr);
    EXPECT_GT(third.size(), 100U);
    EXPECT_TRUE(third == last);
  }
}

TEST(ContextParallelMemory, IsNotAskedOfTheSystemAfterTheSecondStep) {
  const ModelConfig model = small("gpt2-tiny");
  for (const RunLayout& layout : layouts_of(model, 2)) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    run.losses(2);
    const std::int64_t taken = run.arena().counts().system_allocations;
    run.losses(3);
    EXPECT_EQ(run.arena().counts().system_allocations, taken);
  }
}

}  // namespace
}  // namespace piton::ranks::context_test
