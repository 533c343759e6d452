// Layers that predict later tokens: losses, all gradients and steps of AdamW against
// Megatron-core's GPTModel (tests/golden/later_tokens/*.safetensors, made by
// tools/oracle/later_tokens.py), with a shared table and learned positions, and with a head of its
// own and rotary ones; and against modules of Transformers, of Qwen 3.5. Gradients against central
// differences of the losses. Evaluations have the main loss alone.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "checkpoint/safetensors.h"
#include "kernels/reference/kernels.h"
#include "model/families.h"
#include "session/later_labels.h"
#include "support/golden_model.h"
#include "support/host_machine.h"
#include "support/run_session.h"
#include "support/session/central_difference.h"

namespace piton {
namespace {

constexpr double kFactor = 0.3;  // of the oracle

enum class Kind : std::uint8_t { kGpt, kLlama, kQwen };

std::string name_of(Kind kind) {
  return kind == Kind::kGpt ? "gpt" : kind == Kind::kLlama ? "llama" : "qwen";
}

ModelConfig later_config(Kind kind) {
  const char* const families[] = {"gpt2", "llama", "qwen3_5"};
  ModelConfig model = family_facts(families[static_cast<std::size_t>(kind)]);
  model.layers = 2;
  model.hidden = 24;
  model.heads = 4;
  model.head_size = 6;
  model.groups = kind == Kind::kGpt ? 4 : 2;
  model.ffn_hidden = 40;
  model.vocabulary = 61;
  model.max_positions = 32;
  model.hidden_dropout = model.attention_dropout = 0;
  model.mtp_layers = kind == Kind::kGpt ? 2 : 1;
  model.mtp_loss_factor = kFactor;
  if (kind != Kind::kQwen) return model;
  model.layers = 4;
  model.head_size = 8;
  model.tied = true;
  model.delta =
      DeltaFacts{.key_heads = 2, .value_heads = 4, .key_size = 6, .value_size = 5, .width = 3};
  return model;
}

struct LaterRun : test::HostMachine {
  explicit LaterRun(Kind kind)
      : golden(std::string(PITON_SOURCE_DIR) + "/tests/golden/later_tokens/" + name_of(kind) +
               ".safetensors"),
        mesh(*world, MeshSizes{}),
        session(machine, mesh,
                {.model = later_config(kind),
                 .optimizer_options = {.beta1 = 0.9,
                                       .beta2 = 0.95,
                                       .eps = 1e-8,
                                       .weight_decay = 0.1,
                                       .clip_grad = 1.0}}) {
    test::set_golden_weights(session, golden, *stream);
  }

  SafetensorsFile golden;
  Mesh mesh;
  Session session;
};

class LaterTokensOf : public testing::TestWithParam<Kind> {};

TEST_P(LaterTokensOf, HaveTheGradientsOfTheOracle) {
  LaterRun run(GetParam());
  run.session.gradients({test::golden_batch(run.golden)}, 0);
  std::map<std::string, std::vector<double>> got;
  std::map<std::string, std::vector<double>> wanted;
  for (Parameter* parameter : run.session.parameters()) {
    for (const Piece& piece : parameter->pieces) {
      got[piece.name] =
          test::values(parameter->gradient.slice(0, piece.local_row, piece.extent[0]));
      wanted[piece.name] = test::values(run.golden.tensor("gradient." + piece.name));
    }
  }
  // Builds without fused products and sums differ by up to 1.1e-5 from each other.
  EXPECT_LT(test::largest_difference(got, wanted), 3e-5);
  std::size_t in_file = 0;
  for (const SafetensorsEntry& entry : run.golden.entries())
    if (entry.name.starts_with("gradient.")) ++in_file;
  EXPECT_EQ(got.size(), in_file);
}

TEST_P(LaterTokensOf, FollowTheOracleThroughSteps) {
  LaterRun run(GetParam());
  const MicroBatch batch = test::golden_batch(run.golden);
  const std::vector<double> losses = test::values(run.golden.tensor("losses"));
  const std::vector<double> norms = test::values(run.golden.tensor("norms"));
  const std::vector<double> later = test::values(run.golden.tensor("mtp_losses"));
  ASSERT_EQ(losses.size(), 10U);
  const std::size_t layers = later.size() / losses.size();
  // With the gated delta rule, differences of rounding grow several times in each step here.
  const std::size_t steps = GetParam() == Kind::kQwen ? 5 : losses.size();
  for (std::size_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(step);
    EXPECT_NEAR(run.session.evaluate({batch}).loss_sum / batch.loss_tokens(), losses[step],
                1e-4 * losses[step]);
    const StepReport report = run.session.train_step({batch}, 0, 1e-2);
    EXPECT_NEAR(report.loss, losses[step], 1e-4 * losses[step]);
    EXPECT_NEAR(report.grad_norm, norms[step], 5e-4 * norms[step]);
    ASSERT_EQ(report.figures.size(), layers);
    for (std::size_t layer = 0; layer < layers; ++layer) {
      EXPECT_EQ(report.figures[layer].name, fmt::format("mtp_{}_loss", layer + 1));
      const double one = later[step * layers + layer];
      EXPECT_NEAR(report.figures[layer].mean(), one, 1e-4 * one);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LaterTokensOf,
                         testing::Values(Kind::kGpt, Kind::kLlama, Kind::kQwen),
                         [](const auto& info) { return name_of(info.param); });

// In fp64, of the loss that a step minimizes: that of the labels and the mean of the later ones.
TEST(LaterTokens, GradientsAreThoseOfCentralDifferences) {
  ModelConfig model = preset("llama-tiny");
  model.layers = 2;
  model.hidden = 32;
  model.heads = model.groups = 4;
  model.head_size = 8;
  model.ffn_hidden = 48;
  model.vocabulary = 61;
  model.dtype = DType::kF64;
  model.experts = ExpertFacts{.experts = 4, .choices = 2, .ffn_hidden = 24, .dense_layers = {0}};
  model.mtp_layers = 2;
  model.mtp_loss_factor = kFactor;
  test::HostMachine host([](ThreadPool&) { return make_reference_kernels(); });
  Mesh mesh(*host.world, MeshSizes{});
  Session session(host.machine, mesh, {.model = model, .use = SessionUse::kGradients});
  session.initialize();
  std::vector<MicroBatch> batches = test::batches(5, 0, 1, model.vocabulary, {2});
  // Two packed texts in each sample.
  for (std::int64_t row = 0; row < 2 * test::kSequence; ++row)
    batches[0].segments.push_back(row % test::kSequence < 13 ? 0 : 1);
  const auto loss = [&] {
    const StepReport report = session.gradients(batches, 0);
    return report.loss + kFactor / 2 * (report.figures.at(0).mean() + report.figures.at(1).mean());
  };
  loss();
  std::map<Parameter*, std::vector<double>> gradients;
  for (Parameter* parameter : session.parameters())
    gradients[parameter] = test::values(parameter->gradient);
  int compared = 0;
  for (const auto& [parameter, gradient] : gradients) {
    const test::Slope slope = test::largest_slope(session, *parameter, gradient,
                                                  {.step = 1e-5, .stream = *host.stream}, loss);
    EXPECT_NEAR(slope.difference, slope.gradient, 1e-6 * (1 + std::abs(slope.gradient)))
        << parameter->name;
    ++compared;
  }
  EXPECT_GT(compared, 20);
}

TEST(LaterTokens, AreThoseOfTheNextRowsOfATextAndSegment) {
  const MicroBatch batch{.samples = 2,
                         .sequence = 4,
                         .tokens = {1, 2, 3, 4, 5, 6, 7, 8},
                         .labels = {2, 3, 4, 9, 6, 7, 8, kNoLabel},
                         .loss_mask = {1, 1, 0.5, 1, 1, 1, 1, 0},
                         .positions = {0, 1, 2, 3, 0, 1, 0, 1},
                         .segments = {0, 0, 0, 0, 0, 0, 1, 1}};
  const MicroBatch moved = moved_by_one(batch);
  EXPECT_EQ(moved.tokens, (std::vector<std::int32_t>{2, 3, 4, 0, 6, 0, 8, 0}));
  EXPECT_EQ(moved.labels,
            (std::vector<std::int32_t>{3, 4, 9, kNoLabel, 7, kNoLabel, kNoLabel, kNoLabel}));
  EXPECT_EQ(moved.loss_mask, (std::vector<float>{1, 0.5, 1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(moved.positions, (std::vector<std::int32_t>{1, 2, 3, 0, 1, 0, 1, 0}));
  EXPECT_EQ(moved.segments, batch.segments);
}

}  // namespace
}  // namespace piton
