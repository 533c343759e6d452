// ranks: 2 4
// Adapters under any layout have the losses, gradients and values of one process, and every other
// parameter keeps its bits. Also with stages that have no adapter. By day a test meets half of the
// layouts, and another test, or model, the others.
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "api/planning.h"
#include "checkpoint/load_values.h"
#include "model/lora/lora_options.h"
#include "ranks/setting.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::ranks::lora_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;

const int kSteps = test::nightly() ? 8 : 5;

std::vector<RunLayout> layouts(int ranks) {
  const auto zb = ScheduleKind::kZeroBubbleH1;
  if (ranks == 2) {
    return {
        {.name = "TP 2", .mesh = mesh(2, 1, 1)},
        {.name = "TP 2 + SP", .mesh = mesh(2, 1, 1), .sequence_parallel = true},
        {.name = "TP 2 + SP, 2 slices",
         .mesh = mesh(2, 1, 1),
         .sequence_parallel = true,
         .slices = 2},
        {.name = "TP 2 + SP, recompute",
         .mesh = mesh(2, 1, 1),
         .sequence_parallel = true,
         .recompute = true},
        {.name = "PP 2", .mesh = mesh(1, 1, 2)},
        {.name = "PP 2, ZB-H1, recompute",
         .mesh = mesh(1, 1, 2),
         .recompute = true,
         .schedule = {zb}},
        {.name = "PP 2, a V", .mesh = mesh(1, 1, 2), .own_schedule = test::letter_v(4)},
        {.name = "PP 2, interleaved",
         .mesh = mesh(1, 1, 2),
         .schedule = {.kind = ScheduleKind::kInterleaved, .chunks = 2}},
        {.name = "PP 2, ZB-V", .mesh = mesh(1, 1, 2), .schedule = {ScheduleKind::kZeroBubbleV}},
        {.name = "DP 2", .mesh = mesh(1, 2, 1)},
        {.name = "ZeRO-1", .mesh = mesh(1, 2, 1), .zero = 1},
        {.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2},
        {.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3},
        {.name = "ZeRO-3, recompute", .mesh = mesh(1, 2, 1), .recompute = true, .zero = 3},
    };
  }
  return {
      {.name = "TP 2 x PP 2", .mesh = mesh(2, 1, 2)},
      {.name = "TP 2 x PP 2 + SP, ZB-H1, recompute",
       .mesh = mesh(2, 1, 2),
       .sequence_parallel = true,
       .recompute = true,
       .schedule = {zb}},
      {.name = "TP 2 x PP 2 + SP, ZB-H1",
       .mesh = mesh(2, 1, 2),
       .sequence_parallel = true,
       .schedule = {zb}},
      {.name = "TP 2 x DP 2, ZeRO-1", .mesh = mesh(2, 2, 1), .zero = 1},
      {.name = "TP 2 x DP 2 + SP, ZeRO-3",
       .mesh = mesh(2, 2, 1),
       .sequence_parallel = true,
       .zero = 3},
      {.name = "PP 2 x DP 2, ZeRO-2", .mesh = mesh(1, 2, 2), .zero = 2},
  };
}

// By day the first, third ... of them (`first` 0), or the others (1).
std::vector<RunLayout> half(std::size_t first) {
  return test::sampled(layouts(ranks::world().size()), 2, first);
}

// Every second layer has the gated delta rule, the others attention with a gate.
ModelConfig with_states(const char* family) {
  ModelConfig model = preset("llama-tiny");
  model.family = family;
  model.delta = {
      .attention_every = 2, .key_heads = 4, .value_heads = 8, .key_size = 6, .value_size = 5};
  model.output_gate = true;
  model.vocabulary = 101;
  model.norm_eps = 1e-3;  // norms of heads do not divide by nearly 0
  return model;
}

ModelConfig small(const std::string& name) {
  ModelConfig model = preset(name);
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

Adapters adapters(const ModelConfig& model, std::vector<std::string> targets,
                  std::vector<std::string> saved = {}) {
  LoraOptions options;
  options.target_modules = std::move(targets);
  options.modules_to_save = std::move(saved);
  options.rank = 4;
  options.dropout = 0.2;
  return options.resolve(model);
}

// Compares this rank's part of each canonical tensor with the same part of one process.
using Pieces = std::map<std::string, std::string>;

// Elements of the piece `part`, within the rows of a whole canonical tensor.
std::vector<double> part_of(const std::vector<double>& whole, const Piece& part) {
  const std::int64_t columns = part.global.ndim() > 1 ? part.global[1] : 1;
  const std::int64_t width = part.extent.ndim() > 1 ? part.extent[1] : 1;
  const std::int64_t skip = part.start.ndim() > 1 ? part.start[1] : 0;
  std::vector<double> values;
  for (std::int64_t row = 0; row < part.extent[0]; ++row) {
    const auto begin = whole.begin() + (part.start[0] + row) * columns + skip;
    values.insert(values.end(), begin, begin + width);
  }
  return values;
}

// By canonical name: of one process.
std::map<std::string, std::vector<double>> by_piece(TrainingRun& run, bool gradients) {
  std::map<std::string, std::vector<double>> all;
  for (Parameter* parameter : run.session().parameters()) {
    if (!parameter->trainable) continue;
    const Tensor rows = gradients
                            ? parameter->gradient
                            : run.session().sharded().whole_value(*parameter, run.machine().stream);
    for (const Piece& piece : parameter->pieces)
      all[piece.name] = test::values(rows.slice(0, piece.local_row, piece.extent[0]));
  }
  return all;
}

void expect_parts(TrainingRun& run, const std::map<std::string, std::vector<double>>& whole,
                  bool gradients, double tolerance) {
  double norm = 0;
  for (const auto& [name, one] : whole) {
    for (const double value : one) norm = std::max(norm, std::fabs(value));
  }
  for (Parameter* parameter : run.session().parameters()) {
    if (!parameter->trainable) continue;
    const Tensor rows = gradients
                            ? parameter->gradient
                            : run.session().sharded().whole_value(*parameter, run.machine().stream);
    for (const Piece& piece : parameter->pieces) {
      const auto got = test::values(rows.slice(0, piece.local_row, piece.extent[0]));
      const auto wanted = part_of(whole.at(piece.name), piece);
      ASSERT_EQ(got.size(), wanted.size()) << piece.name;
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], wanted[i], tolerance * norm) << piece.name << " " << i;
    }
  }
}

Pieces frozen_pieces(TrainingRun& run) {
  Pieces pieces = run.pieces();
  for (Parameter* parameter : run.session().parameters()) {
    if (!parameter->trainable) continue;
    for (const Piece& piece : parameter->pieces)
      pieces.erase(piece.name + "@" + to_string(piece.start) + to_string(piece.extent));
  }
  return pieces;
}

void compare(const ModelConfig& model, const Adapters& adapters,
             const std::vector<RunLayout>& list) {
  std::vector<double> alone;
  std::map<std::string, std::vector<double>> gradients, values;
  {
    HostDevice device;
    const auto world = make_single_world(device);
    TrainingRun run(*world, {.name = "one process", .adapters = adapters}, model);
    alone = run.losses(kSteps);
    gradients = by_piece(run, true);
    values = by_piece(run, false);
  }
  ASSERT_LT(alone.back(), alone.front());
  for (RunLayout layout : list) {
    SCOPED_TRACE(layout.name);
    layout.adapters = adapters;
    TrainingRun run(ranks::world(), layout, model);
    const Pieces frozen = frozen_pieces(run);
    const std::vector<double> losses = run.losses(kSteps);
    for (int step = 0; step < kSteps; ++step)
      ASSERT_NEAR(losses[step], alone[step], 1e-5 * alone[step]) << "step " << step;
    EXPECT_EQ(frozen_pieces(run), frozen);
    expect_parts(run, values, false, 2e-3);
    if (layout.zero == 0) expect_parts(run, gradients, true, 1e-3);
  }
}

class Lora : public testing::TestWithParam<const char*> {};

TEST_P(Lora, HasTheLossesGradientsAndValuesOfOneProcess) {
  const ModelConfig model = small(GetParam());
  compare(model, adapters(model, {"all-linear"}), half(model.gated ? 1 : 0));
}

TEST_P(Lora, MayTrainNormsAndEmbeddingsToo) {
  const ModelConfig model = small(GetParam());
  std::vector<RunLayout> some;
  const std::vector<RunLayout> all = half(model.gated ? 0 : 1);
  for (std::size_t i = 0; i < all.size(); i += 3) some.push_back(all[i]);
  compare(model, adapters(model, {"linear_qkv", "linear_fc1"}, {"word_embeddings", "norms"}), some);
}

// Adapters of one linear have other ranks, and some layers none.
TEST_P(Lora, MayHaveSeveralRanksAndLayersWithoutAdapters) {
  const ModelConfig model = small(GetParam());
  LoraOptions options;
  options.target_modules = {"q_proj", "v_proj", "linear_fc1", "down_proj"};
  options.rank = 4;
  options.layers = {0, 2};
  options.rank_pattern = {"v_proj=2", "layers.2.down_proj=6"};
  options.alpha_pattern = {"q_proj=5"};
  std::vector<RunLayout> some;
  const std::vector<RunLayout> all = half(model.gated ? 1 : 0);
  for (std::size_t i = 0; i < all.size(); i += 2) some.push_back(all[i]);
  compare(model, options.resolve(model), some);
}

// The lengths of the rows of a split weight are sums over the ranks.
TEST_P(Lora, MayHaveMagnitudes) {
  const ModelConfig model = small(GetParam());
  LoraOptions options;
  options.target_modules = {"q_proj", "v_proj", "o_proj", "linear_fc1", "down_proj"};
  options.rank = 4;
  options.use_dora = true;
  compare(model, options.resolve(model), half(model.gated ? 0 : 1));
}

// One mask for each linear, of global coordinates.
TEST_P(Lora, MayHaveMagnitudesUnderDropout) {
  const ModelConfig model = small(GetParam());
  LoraOptions options;
  options.target_modules = {"q_proj", "v_proj", "o_proj", "linear_fc1", "down_proj"};
  options.rank = 4;
  options.dropout = 0.2;
  options.use_dora = true;
  std::vector<RunLayout> some;
  for (const RunLayout& layout : half(model.gated ? 1 : 0)) {
    if (layout.mesh[Axis::kTensor] > 1 || layout.zero == 3) some.push_back(layout);
  }
  compare(model, options.resolve(model), some);
}

INSTANTIATE_TEST_SUITE_P(Models, Lora, testing::Values("gpt2-tiny", "llama-tiny"));

// Heads of both kinds of layers are split over the tensor ranks: those of a query with their gate,
// those of keys with their values, gates, strengths and decays.
TEST(LoraOfStates, HasTheLossesGradientsAndValuesOfOneProcess) {
  for (const char* family : {"qwen3_5", "qwen3_next"}) {
    SCOPED_TRACE(family);
    const ModelConfig model = with_states(family);
    compare(model, adapters(model, {"all-linear"}), half(model.family == "qwen3_5" ? 0 : 1));
  }
}

TEST(LoraOfStates, MayShareAOverAllOfALinear) {
  const ModelConfig model = with_states("qwen3_5");
  compare(model, adapters(model, {"linear_qkv", "in_proj", "out_proj"}, {"norms"}), half(1));
}

TEST(LoraOfStates, MayHaveMagnitudes) {
  const ModelConfig model = with_states("qwen3_next");
  LoraOptions options;
  options.target_modules = {"q_proj",   "in_proj_qkv", "in_proj_ba",
                            "out_proj", "o_proj",      "linear_fc1"};
  options.rank = 4;
  options.dropout = 0.2;
  options.use_dora = true;
  compare(model, options.resolve(model), half(0));
}

// One end of the model has no trained parameter; gradients still pass to the other end.
TEST(LoraStages, MayHaveNoAdapter) {
  const ModelConfig model = small("llama-tiny");
  std::vector<RunLayout> all;
  for (const RunLayout& layout : layouts(ranks::world().size())) {
    if (layout.mesh[Axis::kPipeline] > 1 || layout.zero > 0) all.push_back(layout);
  }
  for (const std::int64_t layer : {std::int64_t{0}, model.layers - 1}) {
    SCOPED_TRACE(layer);
    Adapters only = adapters(model, {"q_proj", "v_proj", "down_proj"});
    std::erase_if(only.shapes, [&](const auto& one) {
      return !one.first.starts_with(fmt::format("layers.{}.", layer));
    });
    compare(model, only, test::sampled(all, 2, layer == 0 ? 0 : 1));
  }
}

// `plan` counts the memory of adapters, and no gradients and moments of frozen parameters.
void expect_planned_memory(const ModelConfig& model) {
  for (RunLayout layout : half(0)) {
    SCOPED_TRACE(layout.name);
    layout.adapters = adapters(model, {"all-linear"}, {"norms"});
    TrainingRun run(ranks::world(), layout, model);
    run.losses(3);
    const std::int64_t requests = run.arena().counts().system_allocations;
    run.losses(2);
    EXPECT_EQ(run.arena().counts().system_allocations, requests);
    RunPlan plan{.mesh = layout.mesh,
                 .sequence = test::kSequence,
                 .micro_batch = 2,
                 .global_batch = test::kSamples,
                 .micro_batches = run.session().settings().micro_batches,
                 .session = run.session().settings()};
    const MemoryCounts planned = estimate_layout(plan, run.machine())[ranks::world().rank()].memory;
    const MemoryCounts& counted = run.arena().counts();
    const auto expect_near = [](std::int64_t predicted, std::int64_t taken, double share) {
      EXPECT_NEAR(static_cast<double>(predicted), static_cast<double>(taken),
                  share * static_cast<double>(taken));
    };
    const auto of_kind = [](const MemoryCounts& counts, MemoryKind kind) {
      return counts.peak_bytes[static_cast<std::size_t>(kind)];
    };
    expect_near(planned.peak_total_bytes, counted.peak_total_bytes, 0.03);
    expect_near(of_kind(planned, MemoryKind::kGradients), of_kind(counted, MemoryKind::kGradients),
                0);
    // A rank of a plan has no sums of the norm of other ranks.
    expect_near(of_kind(planned, MemoryKind::kOptimizer), of_kind(counted, MemoryKind::kOptimizer),
                0.03);
  }
}

TEST(LoraMemory, IsWhatThePlanPredictsAndStaysTheSame) {
  expect_planned_memory(small("llama-tiny"));
}

TEST(LoraMemory, IsWhatThePlanPredictsWhereLayersHaveStates) {
  expect_planned_memory(with_states("qwen3_5"));
}

// Muon gathers the direction of a matrix over its ranks, CAdam the maxima of rows. B has another
// rate (LoRA+).
TEST(LoraOptimizers, HaveTheLossesOfOneProcess) {
  const ModelConfig model = small("llama-tiny");
  const auto losses_of = [](TrainingRun& run) {
    GroupRates rates = 1e-3;
    rates.adapter_outputs = 4e-3;
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) losses.push_back(run.step(rates).loss);
    return losses;
  };
  for (const OptimizerKind kind : {OptimizerKind::kMuon, OptimizerKind::kCadam}) {
    OptimizerOptions optimizer;
    optimizer.kind = kind;
    optimizer.separate_rates = {RateGroup::kAdapterOutputs};
    const Adapters some = adapters(model, {"linear_qkv", "down_proj"}, {"norms"});
    std::vector<double> alone;
    {
      HostDevice device;
      const auto world = make_single_world(device);
      TrainingRun run(*world, {.name = "one process", .optimizer = optimizer, .adapters = some},
                      model);
      alone = losses_of(run);
    }
    for (RunLayout layout : half(kind == OptimizerKind::kMuon ? 0 : 1)) {
      SCOPED_TRACE(layout.name);
      layout.adapters = some;
      layout.optimizer = optimizer;
      TrainingRun run(ranks::world(), layout, model);
      const std::vector<double> losses = losses_of(run);
      for (std::size_t i = 0; i < alone.size(); ++i)
        EXPECT_NEAR(losses[i], alone[i], 1e-4 * alone[i]) << "step " << i;
    }
  }
}

// A new adapter of a loaded model: what is drawn does not depend on what is loaded.
TEST(LoraCheckpoints, OfAModelMayStartANewAdapter) {
  const ModelConfig model = small("gpt2-tiny");
  const Adapters some = adapters(model, {"c_attn", "c_proj"}, {"ln_f"});
  const std::filesystem::path folder =
      std::filesystem::path(PITON_BINARY_DIR) / fmt::format("new_lora_{}", ranks::world().size());
  if (ranks::world().rank() == 0) {
    std::filesystem::remove_all(folder);
    HostDevice device;
    const auto world = make_single_world(device);
    TrainingRun run(*world, {.name = "one process"}, model);
    run.losses(3);
    StoredModel weights = run.stored();
    weights.optimizer = nullptr;
    save_checkpoint(weights, run.store(), {folder, {.iteration = 3}, ""});
  }
  ranks::everyone().barrier();
  const auto losses_of = [&](World& world, RunLayout layout) {
    layout.adapters = some;
    TrainingRun run(world, layout, model);
    StoredModel base = run.stored();
    base.parameters = base_parameters(base.parameters);
    base.optimizer = nullptr;
    load_checkpoint(find_checkpoint(folder), base, run.store());
    run.session().initialize(adapter_parameters(run.session().parameters()));
    return run.losses(3);
  };
  HostDevice device;
  const auto world = make_single_world(device);
  const std::vector<double> alone = losses_of(*world, {.name = "one process"});
  for (const RunLayout& layout : half(1)) {
    SCOPED_TRACE(layout.name);
    const std::vector<double> losses = losses_of(ranks::world(), layout);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(losses[i], alone[i], 1e-5 * alone[i]) << "step " << i;
  }
}

// What is saved is the adapter with its moments; the model comes from elsewhere. Every layout reads
// what one process has saved, and saves the same bytes again.
TEST(LoraCheckpoints, HoldOnlyTrainedParametersUnderEveryLayout) {
  const ModelConfig model = small("gpt2-tiny");
  const Adapters some = adapters(model, {"c_attn", "c_proj"}, {"ln_f"});
  const std::filesystem::path folder =
      std::filesystem::path(PITON_BINARY_DIR) / fmt::format("lora_{}", ranks::world().size());
  if (ranks::world().rank() == 0) {
    std::filesystem::remove_all(folder);
    HostDevice device;
    const auto world = make_single_world(device);
    TrainingRun run(*world, {.name = "one process", .adapters = some}, model);
    StoredModel base = run.stored();
    base.parameters = base_parameters(base.parameters);
    base.optimizer = nullptr;
    save_checkpoint(base, run.store(), {folder / "base", {.iteration = 0}, ""});
    run.losses(3);
    StoredModel adapter = run.stored();
    adapter.parameters = trained_parameters(adapter.parameters, some);
    save_checkpoint(adapter, run.store(),
                    {folder / "adapter", {.iteration = 3, .consumed_samples = run.consumed()}, ""});
  }
  ranks::everyone().barrier();
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun alone(*world, {.name = "one process", .adapters = some}, model);
  const auto load = [&](TrainingRun& run) {
    StoredModel base = run.stored();
    base.parameters = base_parameters(base.parameters);
    base.optimizer = nullptr;
    load_checkpoint(find_checkpoint(folder / "base"), base, run.store());
    StoredModel adapter = run.stored();
    adapter.parameters = trained_parameters(adapter.parameters, some);
    run.set_consumed(load_checkpoint(find_checkpoint(folder / "adapter"), adapter, run.store())
                         .consumed_samples);
  };
  load(alone);
  const std::vector<double> next = alone.losses(3);
  for (RunLayout layout : half(0)) {
    SCOPED_TRACE(layout.name);
    layout.adapters = some;
    TrainingRun run(ranks::world(), layout, model);
    load(run);
    StoredModel adapter = run.stored();
    adapter.parameters = trained_parameters(adapter.parameters, some);
    const std::filesystem::path again = save_checkpoint(
        adapter, run.store(),
        {folder / "again", {.iteration = 3, .consumed_samples = run.consumed()}, ""});
    const std::filesystem::path one = find_checkpoint(folder / "adapter");
    EXPECT_EQ(weights_hash(again), weights_hash(one));
    EXPECT_EQ(optimizer_hash(again), optimizer_hash(one));
    const std::vector<double> losses = run.losses(3);
    for (std::size_t i = 0; i < next.size(); ++i) EXPECT_NEAR(losses[i], next[i], 1e-5 * next[i]);
  }
}

}  // namespace
}  // namespace piton::ranks::lora_test
