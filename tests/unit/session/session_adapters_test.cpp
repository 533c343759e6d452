// A session with adapters: it starts as the model without them, to the bit; frozen parameters have
// no gradients and no optimizer state; less is kept for backward; recomputation changes nothing.
#include <gtest/gtest.h>

#include <string>

#include "model/lora/lora_options.h"
#include "support/run_session.h"

namespace piton {
namespace {

ModelConfig tiny(const std::string& name, DType dtype = DType::kF32) {
  ModelConfig model = preset(name);
  model.vocabulary = 101;
  model.dtype = dtype;
  return model;
}

Adapters adapters_of(const ModelConfig& model, std::vector<std::string> targets,
                     std::vector<std::string> saved = {}) {
  LoraOptions options;
  options.target_modules = std::move(targets);
  options.modules_to_save = std::move(saved);
  options.rank = 4;
  return options.resolve(model);
}

struct OneProcess {
  OneProcess(const ModelConfig& model, const Adapters& adapters, RecomputeRules rules = {})
      : world(make_single_world(device)),
        run(*world, {.name = "one", .mesh = {}, .rules = rules, .adapters = adapters}, model) {}

  std::int64_t peak(MemoryKind kind) {
    return run.arena().counts().peak_bytes[static_cast<std::size_t>(kind)];
  }

  HostDevice device;
  std::unique_ptr<World> world;
  test::TrainingRun run;
};

TEST(SessionAdapters, StartAsTheModelWithoutThem) {
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const ModelConfig model = tiny(name, dtype);
      const auto batches = test::batches(0, 0, 1, model.vocabulary);
      OneProcess plain(model, {});
      OneProcess adapted(model, adapters_of(model, {"all-linear"}));
      EXPECT_EQ(adapted.run.session().evaluate(batches).loss_sum,
                plain.run.session().evaluate(batches).loss_sum)
          << name << " " << piton::name(dtype);
      adapted.run.losses(2);
      EXPECT_NE(adapted.run.session().evaluate(batches).loss_sum,
                plain.run.session().evaluate(batches).loss_sum);
    }
  }
}

// PEFT's kaiming_uniform_ with a = sqrt 5 is uniform within 1 / sqrt(in).
TEST(SessionAdapters, DrawAUniformlyAndLetBBeZero) {
  const ModelConfig model = tiny("llama-tiny");
  LoraOptions options;
  options.target_modules = {"down_proj"};
  options.rank = 64;
  OneProcess one(model, options.resolve(model));
  int found = 0;
  for (const Parameter* parameter : one.run.session().parameters()) {
    if (!is_adapter_tensor(parameter->name)) continue;
    ++found;
    const std::vector<double> values = test::values(parameter->value);
    const double bound = 1 / std::sqrt(static_cast<double>(model.ffn_hidden));
    double largest = 0;
    double squares = 0;
    for (const double value : values) {
      largest = std::max(largest, std::abs(value));
      squares += value * value;
    }
    if (parameter->name.ends_with(kAdapterB)) {
      EXPECT_EQ(largest, 0);
      continue;
    }
    EXPECT_LE(largest, bound);
    EXPECT_GT(largest, 0.99 * bound);
    EXPECT_NEAR(squares / static_cast<double>(values.size()), bound * bound / 3,
                0.05 * bound * bound);
  }
  EXPECT_EQ(found, 2 * model.layers);
}

// r (in + out) elements of each adapter; of those and of what is trained in full: a gradient and
// two moments, each in units that end at a multiple of 16 elements.
TEST(SessionAdapters, TrainTheElementsOfTheFormula) {
  const ModelConfig model = tiny("llama-tiny");
  OneProcess one(model, adapters_of(model, {"q_proj", "down_proj"}, {"final_layernorm"}));
  const std::int64_t queries = model.heads * model.head_size;
  const std::int64_t wanted =
      model.layers * 4 * (model.hidden + queries + model.ffn_hidden + model.hidden) + model.hidden;
  std::int64_t trained = 0;
  for (const Parameter* parameter : one.run.session().parameters()) {
    EXPECT_EQ(parameter->gradient.defined(), parameter->trainable) << parameter->name;
    if (parameter->trainable) trained += parameter->elements();
  }
  EXPECT_EQ(trained, wanted);
  std::int64_t state = 0;
  for (const OptimizerState& span : one.run.session().optimizer().state()) {
    EXPECT_TRUE(span.parameter->trainable);
    state += span.size();
  }
  EXPECT_EQ(state, wanted);
}

TEST(SessionAdapters, KeepLessThanTrainingAllOfTheModel) {
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    const ModelConfig model = tiny(name);
    OneProcess all(model, {});
    OneProcess query(model, adapters_of(model, {"q_proj"}));
    all.run.losses(2);
    query.run.losses(2);
    EXPECT_LT(query.peak(MemoryKind::kActivations), all.peak(MemoryKind::kActivations)) << name;
    EXPECT_LT(query.peak(MemoryKind::kGradients), all.peak(MemoryKind::kGradients) / 20) << name;
    EXPECT_LT(query.peak(MemoryKind::kOptimizer), all.peak(MemoryKind::kOptimizer) / 20) << name;
  }
}

TEST(SessionAdapters, AreTheSameIfPartsOfALayerAreComputedAgain) {
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    const ModelConfig model = tiny(name);
    LoraOptions options;
    options.target_modules = {"all-linear"};
    options.dropout = 0.2;
    const Adapters adapters = options.resolve(model);
    OneProcess plain(model, adapters);
    const std::vector<double> wanted = plain.run.losses(4);
    for (const RecomputedParts parts :
         {RecomputedParts{.attention = true, .norms = true}, RecomputedParts{.activation = true},
          RecomputedParts{.mlp = true}}) {
      OneProcess again(model, adapters, {RecomputeGranularity::kSelective, false, 1, parts});
      EXPECT_EQ(again.run.losses(4), wanted) << name;
    }
  }
}

TEST(SessionAdapters, TrainUnderEveryOptimizer) {
  const ModelConfig model = tiny("llama-tiny");
  for (const OptimizerKind kind :
       {OptimizerKind::kSgd, OptimizerKind::kMuon, OptimizerKind::kCadam}) {
    OptimizerOptions optimizer;
    optimizer.kind = kind;
    HostDevice device;
    const auto world = make_single_world(device);
    test::TrainingRun run(*world,
                          {.name = "one",
                           .mesh = {},
                           .optimizer = optimizer,
                           .adapters = adapters_of(model, {"all-linear"}, {"norms"})},
                          model);
    const auto batches = test::batches(0, 0, 1, model.vocabulary);
    const double before = run.session().evaluate(batches).loss_sum;
    for (int step = 0; step < 12; ++step) run.step(kind == OptimizerKind::kSgd ? 0.3 : 3e-3);
    EXPECT_LT(run.session().evaluate(batches).loss_sum, before) << static_cast<int>(kind);
  }
}

}  // namespace
}  // namespace piton
