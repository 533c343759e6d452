// Losses, gradients and steps of models with a prefix and with the biases of ALiBi against plain
// PyTorch (tests/golden/attention_masks.txt, made by tools/oracle/attention_masks.py in float64).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "checkpoint/safetensors.h"
#include "generate/inference.h"
#include "kernels/reference/kernels.h"
#include "model/families.h"
#include "support/golden_model.h"
#include "support/host_machine.h"

namespace piton {
namespace {

ModelConfig masked_config(const std::string& family, bool prefix, int bias, DType dtype) {
  ModelConfig model = family_facts(family);
  model.layers = 2;
  model.hidden = 48;
  model.heads = model.groups = 6;
  model.head_size = 8;
  model.ffn_hidden = 4 * 48;
  model.vocabulary = 97;
  model.max_positions = 32;
  model.hidden_dropout = model.attention_dropout = 0;
  model.dtype = dtype;
  model.prefix = prefix;
  model.alibi = bias == 3   ? AlibiKind::kRootOfDistance
                : bias == 2 ? AlibiKind::kDistance
                            : AlibiKind::kDifference;
  return model;
}

OptimizerOptions plain_sgd() {
  OptimizerOptions options;
  options.kind = OptimizerKind::kSgd;
  options.sgd_momentum = options.weight_decay = options.clip_grad = 0;
  return options;
}

struct MaskedRun : test::HostMachine {
  MaskedRun(const std::string& family, const ModelConfig& model, bool reference)
      : HostMachine([&](ThreadPool& pool) {
          return reference ? make_reference_kernels() : make_cpu_kernels(pool, test::chosen_isa());
        }),
        golden(std::string(PITON_SOURCE_DIR) + "/tests/golden/" + family + ".safetensors"),
        mesh(*world, MeshSizes{}),
        session(machine, mesh, {.model = model, .optimizer_options = plain_sgd()}) {
    test::set_golden_weights(session, golden, *stream);
  }

  MicroBatch batch() {
    MicroBatch rows = test::golden_batch(golden);
    if (!session.settings().model.prefix) return rows;
    const std::int64_t unlabelled[] = {4, 0, 11};
    for (std::int64_t sample = 0; sample < rows.samples; ++sample) {
      for (std::int64_t place = 0; place < unlabelled[sample]; ++place)
        rows.loss_mask[static_cast<std::size_t>(sample * rows.sequence + place)] = 0;
    }
    return rows;
  }

  SafetensorsFile golden;
  Mesh mesh;
  Session session;
};

struct MaskedCase {
  std::string family;
  bool prefix = false;
  int bias = 0;
  double norm = 0;
  std::vector<double> losses;
};

std::vector<MaskedCase> masked_cases() {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/attention_masks.txt");
  std::vector<MaskedCase> cases;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    MaskedCase one{.losses = std::vector<double>(6)};
    words >> one.family >> one.prefix >> one.bias >> one.norm;
    for (double& loss : one.losses) words >> loss;
    EXPECT_TRUE(words) << line;
    cases.push_back(one);
  }
  EXPECT_EQ(cases.size(), 7U);
  return cases;
}

void expect_masked_losses(bool reference, DType dtype, double allowed) {
  for (const MaskedCase& one : masked_cases()) {
    SCOPED_TRACE(fmt::format("{}, prefix {}, bias {}", one.family, one.prefix, one.bias));
    MaskedRun run(one.family, masked_config(one.family, one.prefix, one.bias, dtype), reference);
    for (std::size_t step = 0; step < one.losses.size(); ++step) {
      const StepReport report = run.session.train_step({run.batch()}, 0, 0.1);
      EXPECT_NEAR(report.loss, one.losses[step], allowed * one.losses[step]) << "step " << step;
      if (step > 0) continue;
      EXPECT_NEAR(report.grad_norm, one.norm, 10 * allowed * one.norm);
    }
  }
}

TEST(AttentionMasks, FollowPyTorchOnTheCpu) { expect_masked_losses(false, DType::kF32, 2e-5); }
TEST(AttentionMasks, FollowPyTorchOnTheReference) { expect_masked_losses(true, DType::kF32, 2e-5); }
TEST(AttentionMasks, StayNearPyTorchInBfloat16) { expect_masked_losses(false, DType::kBF16, 3e-2); }

// Biases that are tables are read by the cache as well.
TEST(AttentionMasks, DecodeTheRootsOfDistancesAsWithoutACache) {
  MaskedRun run("bloom", masked_config("bloom", false, 3, DType::kF32), false);
  Inference inference(run.session.context(false), run.session.pipeline(), run.mesh,
                      run.session.settings().model);
  const MicroBatch batch = run.batch();
  const std::vector<std::int32_t> ids(batch.tokens.begin(), batch.tokens.begin() + 20);
  const Tensor whole = inference.logits(ids, 1);
  KvCache cache = inference.make_cache();
  cache.add_text();
  for (std::int64_t place = 0; place < 20; ++place) {
    const TextTokens next{.text = 0, .ids = std::span(ids).subspan(place, 1)};
    const std::vector<std::int32_t> row{0};
    const Tensor one = inference.logits(std::span(&next, 1), row, cache);
    for (std::int64_t id = 0; id < one.dim(1); ++id)
      ASSERT_NEAR(one.data<float>()[id], whole.data<float>()[place * whole.dim(1) + id], 2e-5);
  }
}

}  // namespace
}  // namespace piton
