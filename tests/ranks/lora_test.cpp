// ranks: 2 4
// Adapters under any layout have the losses, gradients and values of one process, and every other
// parameter keeps its bits. Also with stages that have no adapter. By day a test meets half of the
// layouts, and another test, or model, the others.
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "adapter_runs.h"
#include "checkpoint/load_values.h"
#include "model/lora/lora_options.h"
#include "ranks/setting.h"
#include "ranks/state_spaces.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::ranks::lora_test {

namespace {

using adapter_runs::expect_as_one_process;
using adapter_runs::expect_planned_memory;
using test::mesh;
using test::RunLayout;
using test::TrainingRun;

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

class Lora : public testing::TestWithParam<const char*> {};

TEST_P(Lora, HasTheLossesGradientsAndValuesOfOneProcess) {
  const ModelConfig model = small(GetParam());
  expect_as_one_process(model, adapters(model, {"all-linear"}), half(model.gated ? 1 : 0));
}

TEST_P(Lora, MayTrainNormsAndEmbeddingsToo) {
  const ModelConfig model = small(GetParam());
  std::vector<RunLayout> some;
  const std::vector<RunLayout> all = half(model.gated ? 0 : 1);
  for (std::size_t i = 0; i < all.size(); i += 3) some.push_back(all[i]);
  expect_as_one_process(
      model, adapters(model, {"linear_qkv", "linear_fc1"}, {"word_embeddings", "norms"}), some);
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
  expect_as_one_process(model, options.resolve(model), some);
}

// The lengths of the rows of a split weight are sums over the ranks.
TEST_P(Lora, MayHaveMagnitudes) {
  const ModelConfig model = small(GetParam());
  LoraOptions options;
  options.target_modules = {"q_proj", "v_proj", "o_proj", "linear_fc1", "down_proj"};
  options.rank = 4;
  options.use_dora = true;
  expect_as_one_process(model, options.resolve(model), half(model.gated ? 0 : 1));
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
  expect_as_one_process(model, options.resolve(model), some);
}

INSTANTIATE_TEST_SUITE_P(Models, Lora, testing::Values("gpt2-tiny", "llama-tiny"));

// Heads of both kinds of layers are split over the tensor ranks: those of a query with their gate,
// those of keys with their values, gates, strengths and decays.
TEST(LoraOfStates, HasTheLossesGradientsAndValuesOfOneProcess) {
  for (const char* family : {"qwen3_5", "qwen3_next"}) {
    SCOPED_TRACE(family);
    const ModelConfig model = with_states(family);
    expect_as_one_process(model, adapters(model, {"all-linear"}),
                          half(model.family == "qwen3_5" ? 0 : 1));
  }
}

TEST(LoraOfStates, MayShareAOverAllOfALinear) {
  const ModelConfig model = with_states("qwen3_5");
  expect_as_one_process(model, adapters(model, {"linear_qkv", "in_proj", "out_proj"}, {"norms"}),
                        half(1));
}

TEST(LoraOfStates, MayHaveMagnitudes) {
  const ModelConfig model = with_states("qwen3_next");
  LoraOptions options;
  options.target_modules = {"q_proj",   "in_proj_qkv", "in_proj_ba",
                            "out_proj", "o_proj",      "linear_fc1"};
  options.rank = 4;
  options.dropout = 0.2;
  options.use_dora = true;
  expect_as_one_process(model, options.resolve(model), half(0));
}

// The two projections of a layer of Mamba-2 share A. Those of keys and queries are whole on each
// tensor rank with one group of heads, and split with several.
TEST(LoraOfStateSpaces, HasTheLossesGradientsAndValuesOfOneProcess) {
  for (const std::int64_t groups : {1, 4}) {
    SCOPED_TRACE(groups);
    ModelConfig model = small("llama-tiny");
    model.state_space = small_state_spaces(groups);
    expect_as_one_process(model, adapters(model, {"all-linear"}), half(groups == 1 ? 0 : 1));
    LoraOptions options;
    options.target_modules = {"in_proj", "out_proj"};
    options.rank = 4;
    options.dropout = 0.2;
    options.use_dora = true;
    expect_as_one_process(model, options.resolve(model), half(groups == 1 ? 1 : 0));
  }
}

// Of short convolutions in_proj has the rows of input gate, output gate and value, each split.
TEST(LoraOfConvolutions, HasTheLossesGradientsAndValuesOfOneProcess) {
  ModelConfig model = small("llama-tiny");
  model.short_convolution = small_convolutions();
  model.init_deviation = 0.1;  // of products of two, which a convolution weighs
  expect_as_one_process(model, adapters(model, {"all-linear"}), half(0));
  LoraOptions options;
  options.target_modules = {"in_proj", "out_proj"};
  options.rank = 4;
  options.dropout = 0.2;
  options.use_dora = true;
  expect_as_one_process(model, options.resolve(model), half(1));
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
    expect_as_one_process(model, only, test::sampled(all, 2, layer == 0 ? 0 : 1));
  }
}

TEST(LoraMemory, IsWhatThePlanPredictsAndStaysTheSame) {
  const ModelConfig model = small("llama-tiny");
  expect_planned_memory(model, adapters(model, {"all-linear"}, {"norms"}), half(0));
}

TEST(LoraMemory, IsWhatThePlanPredictsWhereLayersHaveStates) {
  const ModelConfig model = with_states("qwen3_5");
  expect_planned_memory(model, adapters(model, {"all-linear"}, {"norms"}), half(0));
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

TEST(LoraCheckpoints, HoldOnlyTrainedParametersUnderEveryLayout) {
  const ModelConfig model = small("gpt2-tiny");
  adapter_runs::expect_equal_checkpoints(model, adapters(model, {"c_attn", "c_proj"}, {"ln_f"}),
                                         half(0), "lora");
}

}  // namespace
}  // namespace piton::ranks::lora_test
