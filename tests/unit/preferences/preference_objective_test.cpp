// Losses, figures and gradients of preferences: those of tools/oracle/preferences.py, and central
// differences; rows, micro-batches and dropout.
#include "preferences/preference_objective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/reference/kernels.h"
#include "model/lora/lora_options.h"
#include "support/errors.h"
#include "support/golden_lora.h"
#include "support/preference_batches.h"
#include "support/sampled.h"
#include "support/session/central_difference.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using test::HostMachine;
using test::LoraFiles;
using test::PreferenceRows;

fs::path golden_folder_of_preferences() {
  return fs::path(PITON_SOURCE_DIR) / "tests/golden/preferences";
}

struct GoldenCase {
  const char* name;
  PreferenceOptions options;
};

std::vector<GoldenCase> golden_cases() {
  using S = TrainingStage;
  using K = PairLossKind;
  return {{"dpo", {.stage = S::kDpo, .dpo_beta = 0.1}},
          {"dpo_smooth_ftx",
           {.stage = S::kDpo, .dpo_beta = 0.3, .dpo_label_smoothing = 0.1, .pref_ftx = 0.2}},
          {"hinge", {.stage = S::kDpo, .dpo_beta = 0.2, .dpo_loss = K::kHinge}},
          {"ipo", {.stage = S::kIpo, .dpo_beta = 0.1}},
          {"orpo", {.stage = S::kOrpo, .orpo_beta = 0.4}},
          {"simpo",
           {.stage = S::kSimpo,
            .simpo_beta = 2.5,
            .gamma_beta_ratio = 1.4,
            .simpo_label_smoothing = 0.05}},
          {"dpo_ld", {.stage = S::kDpo, .dpo_beta = 0.2, .ld_alpha = 0.4, .pref_ftx = 0.1}},
          {"cpo", {.stage = S::kCpo, .cpo_beta = 0.2, .cpo_alpha = 0.8}},
          {"kto",
           {.stage = S::kKto,
            .kto_beta = 0.1,
            .kto_desirable_weight = 1.2,
            .kto_undesirable_weight = 0.8}}};
}

std::vector<test::AnswerText> golden_texts(const SafetensorsFile& batch) {
  const Tensor ids = batch.tensor("ids");
  const Tensor labels = batch.tensor("labels");
  std::vector<test::AnswerText> texts(static_cast<std::size_t>(ids.dim(0)));
  for (std::int64_t i = 0; i < ids.elements(); ++i) {
    if (ids.data<std::int32_t>()[i] < 0) continue;
    test::AnswerText& text = texts[static_cast<std::size_t>(i / ids.dim(1))];
    text.ids.push_back(ids.data<std::int32_t>()[i]);
    text.labels.push_back(labels.data<std::int32_t>()[i]);
  }
  return texts;
}

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}

TEST(PreferenceObjective, HasTheLossesFiguresAndGradientsOfTheOracle) {
  const SafetensorsFile batch(golden_folder_of_preferences() / "batch.safetensors");
  const auto texts = golden_texts(batch);
  HostMachine machine;
  LoraFiles files("qwen2");
  for (GoldenCase one : golden_cases()) {
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(machine.machine, mesh,
                    {.model = files.model(), .adapters = files.adapter.adapters()});
    test::load_lora(session, files.base, files.adapter, machine);
    PreferenceObjective objective(one.options);
    session.set_objective(&objective);
    TempFolder folder;
    fs::copy_file(golden_folder_of_preferences() / (std::string(one.name) + ".safetensors"),
                  folder / kPeftWeightsName);
    fs::copy_file(test::lora_folder("qwen2") / kPeftConfigName, folder / kPeftConfigName);
    PeftSource wanted(folder.path(), files.model(), files.family);
    const double loss = test::value_at(batch.tensor(std::string(one.name) + ".loss"), 0);
    const auto figures = test::values(batch.tensor(std::string(one.name) + ".figures"));
    const bool judged = !one.options.by_pairs();
    for (const PreferenceRows& rows : {PreferenceRows{.sequence = 56},
                                       {.sequence = 56, .micro = 3},
                                       {.sequence = 120, .packed = true}}) {
      SCOPED_TRACE(
          fmt::format("{} in rows of {}, {} at once", one.name, rows.sequence, rows.micro));
      const auto batches = test::preference_batch(texts, judged, rows);
      const StepReport report = session.gradients(batches, 0);
      EXPECT_EQ(report.loss_tokens, 3);
      EXPECT_NEAR(report.loss, loss, 1e-5 * loss);
      ASSERT_EQ(report.figures.size(), figures.size());
      for (std::size_t i = 0; i < figures.size(); ++i)
        EXPECT_NEAR(report.figures[i].mean(), figures[i], 1e-5 * (1 + std::abs(figures[i])))
            << report.figures[i].name;
      const Session::Evaluation evaluation = session.evaluate(batches);
      EXPECT_EQ(evaluation.loss_sum / evaluation.loss_tokens, report.loss);
      std::map<std::string, std::vector<double>> ours;
      for (const Parameter* parameter : session.parameters()) {
        if (!parameter->trainable) continue;
        for (const Piece& piece : parameter->pieces)
          ours[piece.name] =
              test::values(parameter->gradient.slice(0, piece.local_row, piece.extent[0]));
      }
      ASSERT_EQ(ours.size(), wanted.tensors(TensorKind::kWeight).size());
      for (const CanonicalTensor& tensor : wanted.tensors(TensorKind::kWeight)) {
        const std::vector<double> right = test::values_of(wanted, tensor);
        ASSERT_GT(norm_of(right), 0) << tensor.name;
        EXPECT_LE(test::largest_distance(ours.at(tensor.name), right), 1e-5 * norm_of(right))
            << tensor.name;
      }
    }
  }
}

// A model in fp64 and another one as its reference.
struct TwoModels {
  explicit TwoModels(const ModelConfig& model) : mesh(*machine.world, MeshSizes{}) {
    session = std::make_unique<Session>(
        machine.machine, mesh,
        SessionSettings{.model = model, .seed = 11, .use = SessionUse::kGradients});
    reference = std::make_unique<Session>(
        machine.machine, mesh,
        SessionSettings{.model = model, .seed = 12, .use = SessionUse::kInference});
    session->initialize();
    reference->initialize();
  }

  HostMachine machine{[](ThreadPool&) { return make_reference_kernels(); }};
  Mesh mesh;
  std::unique_ptr<Session> session;
  std::unique_ptr<Session> reference;
};

ModelConfig wide_model(double dropout) {
  ModelConfig model = preset("llama-tiny");
  model.layers = 2;
  model.hidden = 32;
  model.ffn_hidden = 48;
  model.vocabulary = 61;
  model.dtype = DType::kF64;
  model.hidden_dropout = model.attention_dropout = dropout;
  return model;
}

// With dropout the weights and the gradient see the same masks, or these would differ; that does
// not depend on the formula.
TEST(PreferenceObjective, GradientsAreCentralDifferences) {
  int turn = 0;
  for (const double dropout : {0.0, 0.2}) {
    for (const TrainingStage stage : test::kPreferenceStages) {
      if (dropout > 0 && stage != TrainingStage::kDpo) continue;
      SCOPED_TRACE(fmt::format("{}, dropout {}", name(stage), dropout));
      TwoModels models(wide_model(dropout));
      PreferenceObjective objective({.stage = stage}, models.reference.get());
      models.session->set_objective(&objective);
      const auto batches = test::preference_batch(
          test::answer_texts(61, 4), stage == TrainingStage::kKto, {.sequence = 64, .micro = 2});
      Session& session = *models.session;
      session.gradients(batches, 64);
      // Every fourth parameter; by day every eighth, others in each stage.
      int probed = 4 * turn++;
      for (Parameter* parameter : session.parameters()) {
        const std::vector<double> gradient = test::values(parameter->gradient);
        if (++probed % (4 * test::one_of(2)) != 1) continue;
        const test::Slope slope = test::largest_slope(
            session, *parameter, gradient, {.step = 1e-4, .stream = *models.machine.stream},
            [&] { return session.gradients(batches, 64).loss; });
        // Weights of tokens are fp32.
        EXPECT_NEAR(slope.difference, slope.gradient, 1e-5 * (1 + std::abs(slope.gradient)))
            << parameter->name;
      }
    }
  }
}

TEST(PreferenceObjective, RefusesWhatCannotBeCompared) {
  TwoModels models(wide_model(0));
  PreferenceObjective objective({.stage = TrainingStage::kDpo}, models.reference.get());
  models.session->set_objective(&objective);
  auto batches = test::preference_batch(test::answer_texts(61, 2), false, {.sequence = 64});
  auto silent = batches;
  std::fill(silent[0].labels.begin(), silent[0].labels.end(), kNoLabel);
  EXPECT_THAT(message_of(Fault::kData, [&] { models.session->gradients(silent, 0); }),
              testing::HasSubstr("no token of an answer of "));
  const auto judged = test::preference_batch(test::answer_texts(61, 2), true, {.sequence = 64});
  EXPECT_THAT(message_of(Fault::kData, [&] { models.session->gradients(judged, 0); }),
              testing::HasSubstr("--stage dpo: wanted pairs of answers, got judged answers"));
  for (MicroBatch& batch : batches) batch.answers.clear();
  EXPECT_THAT(message_of(Fault::kData, [&] { models.session->gradients(batches, 0); }),
              testing::HasSubstr("--stage dpo: a batch has no answers to compare"));
}

}  // namespace
}  // namespace piton
