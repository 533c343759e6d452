// ranks: 2 4
// Adapters of latent attention, of experts and of MLPs next to them have the losses, gradients and
// values of one process under any layout, and every other parameter keeps its bits.
#include <string>
#include <utility>
#include <vector>

#include "adapter_runs.h"
#include "model/families.h"
#include "model/lora/lora_options.h"
#include "ranks/setting.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::ranks::expert_adapters_test {

namespace {

using adapter_runs::expect_as_one_process;
using test::mesh;
using test::RunLayout;
using test::with_context;
using test::with_experts;

RunLayout divided(std::string name, int e, const MeshSizes& sizes) {
  return {.name = std::move(name), .mesh = with_experts(sizes, e)};
}

std::vector<RunLayout> layouts_of_two() {
  std::vector<RunLayout> all{
      {.name = "TP 2", .mesh = mesh(2, 1, 1)},
      {.name = "TP 2 + SP", .mesh = mesh(2, 1, 1), .sequence_parallel = true},
      divided("EP 2", 2, mesh(1, 1, 1)),
      {.name = "TP 2 + SP, recompute",
       .mesh = mesh(2, 1, 1),
       .sequence_parallel = true,
       .recompute = true},
      divided("EP 2, ZeRO-1", 2, mesh(1, 1, 1)),
      divided("EP 2, ZeRO-3, recompute", 2, mesh(1, 1, 1)),
      {.name = "PP 2, ZB-H1", .mesh = mesh(1, 1, 2), .schedule = {ScheduleKind::kZeroBubbleH1}},
      {.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2},
      {.name = "CP 2", .mesh = with_context(mesh(1, 1, 1), 2)},
      divided("EP 2, single rows", 2, mesh(1, 1, 1)),
      divided("EP 2, single rows, recompute", 2, mesh(1, 1, 1))};
  all[9].sends_rows = all[10].sends_rows = true;
  all[10].recompute = true;
  all[4].zero = 1;
  all[5].zero = 3;
  all[5].recompute = true;
  return all;
}

std::vector<RunLayout> layouts() {
  if (ranks::world().size() == 2) return layouts_of_two();
  std::vector<RunLayout> all{divided("EP 4", 4, mesh(1, 1, 1)),
                             divided("EP 2 x TP 2 + SP", 2, mesh(2, 1, 1)),
                             divided("EP 2 x TP 2", 2, mesh(2, 1, 1)),
                             divided("EP 2 x TP 2 + SP, ZeRO-3, recompute", 2, mesh(2, 1, 1)),
                             divided("EP 2 x PP 2, ZeRO-1", 2, mesh(1, 1, 2)),
                             divided("EP 2 x DP 2, ZeRO-2", 2, mesh(1, 2, 1)),
                             divided("EP 2 x TP 2 + SP, single rows", 2, mesh(2, 1, 1)),
                             divided("EP 4, single rows", 4, mesh(1, 1, 1))};
  all[6].sequence_parallel = true;
  all[6].sends_rows = all[7].sends_rows = true;
  all[1].sequence_parallel = true;
  all[3].sequence_parallel = true;
  all[3].zero = 3;
  all[3].recompute = true;
  all[4].zero = 1;
  all[5].zero = 2;
  return all;
}

std::vector<RunLayout> half(std::size_t first) { return test::sampled(layouts(), 2, first); }

// Without experts.
std::vector<RunLayout> half_of_dense(std::size_t first) {
  std::vector<RunLayout> some;
  for (const RunLayout& layout : half(first)) {
    if (layout.mesh[Axis::kExpert] == 1) some.push_back(layout);
  }
  if (!some.empty()) return some;
  return {{.name = "TP 2 x DP 2 + SP", .mesh = mesh(2, 2, 1), .sequence_parallel = true}};
}

ModelConfig small() {
  ModelConfig model = preset("llama-tiny");
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

ModelConfig with_latents(std::int64_t query_rank) {
  ModelConfig model = small();
  model.latent = {.query_rank = query_rank, .rank = 36, .own = 10, .turned = 6, .value = 12};
  model.head_size = model.latent->head_size();
  model.groups = model.heads;
  model.head_norms = true;
  return model;
}

// A mixture next to a shared MLP, in the second half of the layers.
ModelConfig with_mixtures() {
  ModelConfig model = small();
  model.experts = {.experts = 8, .choices = 2};
  model.experts->ffn_hidden = 48;
  model.experts->shared_ffn_hidden = 64;
  model.experts->balance_factor = 0.1;
  model.experts->dense_layers = {0, 1};
  return model;
}

Adapters adapters(const ModelConfig& model, std::vector<std::string> targets,
                  std::vector<std::string> saved = {}) {
  LoraOptions options;
  options.target_modules = std::move(targets);
  options.modules_to_save = std::move(saved);
  options.rank = 4;
  return options.resolve(model);
}

// The small rows are whole on every tensor rank; under sequence parallelism each has its rows of
// them, and draws their dropout.
TEST(LoraOfLatents, HasTheLossesGradientsAndValuesOfOneProcess) {
  for (const std::int64_t query_rank : {0, 28}) {
    SCOPED_TRACE(query_rank);
    const ModelConfig model = with_latents(query_rank);
    LoraOptions options;
    options.target_modules = {"all-linear"};
    options.modules_to_save = {"norms"};
    options.rank = 4;
    options.dropout = 0.2;
    expect_as_one_process(model, options.resolve(model), half_of_dense(query_rank == 0 ? 0 : 1));
  }
}

TEST(LoraOfLatents, MayHaveMagnitudesUnderDropout) {
  const ModelConfig model = with_latents(28);
  LoraOptions options;
  options.target_modules = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"};
  options.rank = 4;
  options.dropout = 0.2;
  options.use_dora = true;
  expect_as_one_process(model, options.resolve(model), half_of_dense(1));
}

TEST(LoraOfExperts, HasTheLossesGradientsAndValuesOfOneProcess) {
  const ModelConfig model = with_mixtures();
  expect_as_one_process(model, adapters(model, {"all-linear"}), half(0));
  // One A of gate and up; the gate of experts alone.
  expect_as_one_process(model, adapters(model, {"linear_fc1", "experts.w2"}, {"norms"}), half(1));
  expect_as_one_process(
      model, adapters(model, {"experts.gate_proj", "q_proj", "o_proj", "down_proj"}), half(1));
}

// The masks of a token are those of its rank, wherever its experts are.
TEST(LoraOfExperts, MayHaveDropout) {
  const ModelConfig model = with_mixtures();
  LoraOptions options;
  options.target_modules = {"all-linear"};
  options.rank = 4;
  options.dropout = 0.2;
  expect_as_one_process(model, options.resolve(model), half(1));
  options.target_modules = {"linear_fc1", "linear_fc2"};
  expect_as_one_process(model, options.resolve(model), half(0));
}

// Biases of experts, which the first tensor rank adds, and choices that are dropped.
TEST(LoraOfExperts, MayHaveBiasesAndACapacity) {
  ModelConfig model = with_mixtures();
  model.biases = true;
  model.experts->capacity_factor = 0.9;
  expect_as_one_process(model, adapters(model, {"gate_up_proj", "down_proj"}), half(0));
}

TEST(LoraOfExperts, MayGetWeightedInputs) {
  ModelConfig model = with_mixtures();
  model.experts->choices = 1;
  model.experts->normalized = false;
  model.experts->weighs_inputs = true;
  expect_as_one_process(model, adapters(model, {"all-linear"}), half(1));
}

TEST(LoraOfExperts, AreSavedAndLoadedUnderEveryLayout) {
  const ModelConfig model = with_mixtures();
  adapter_runs::expect_equal_checkpoints(model, adapters(model, {"all-linear"}), half(0),
                                         "expert_lora");
}

TEST(LoraOfExperts, TakesTheMemoryOfThePlan) {
  const ModelConfig model = with_mixtures();
  adapter_runs::expect_planned_memory(model, adapters(model, {"all-linear"}), half(1));
}

TEST(LoraOfLatents, TakesTheMemoryOfThePlan) {
  const ModelConfig model = with_latents(28);
  adapter_runs::expect_planned_memory(model, adapters(model, {"all-linear"}), half_of_dense(0));
}

}  // namespace
}  // namespace piton::ranks::expert_adapters_test
