// Losses, logits and every gradient of GPT-2, LLaMA, Mistral (a window), Bloom (ALiBi), Qwen2
// (biases of q, k and v), Qwen3 (norms of heads) and Mixtral (experts) against PyTorch
// (tests/golden, made by tools/oracle/models.py with Transformers in float64), and five steps of
// AdamW.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>

#include "checkpoint/safetensors.h"
#include "device/host_device.h"
#include "generate/inference.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "model/families.h"
#include "support/golden_model.h"
#include "support/host_machine.h"
#include "support/instruction_sets.h"
#include "support/sampled.h"

namespace piton {
namespace {

constexpr std::int64_t kHidden = 48;

constexpr const char* kModels[] = {"gpt2",  "llama", "mistral", "bloom",
                                   "qwen2", "qwen3", "mixtral"};

ModelConfig golden_config(const std::string& name, DType dtype) {
  const bool qwen = name.starts_with("qwen");
  const std::string family = name == "mistral" ? "llama" : name;
  const bool gpt2 = name == "gpt2" || name == "bloom";
  ModelConfig model = family_facts(family);
  if (name == "mistral") model.window_before = 5;  // Mistral counts a token's own key
  model.layers = 2;
  model.hidden = kHidden;
  model.heads = 6;
  model.head_size = name == "qwen3" ? 12 : 8;
  model.groups = gpt2 ? 6 : 2;
  model.ffn_hidden = gpt2 ? 4 * kHidden : 80;
  if (name == "mixtral") {
    model.ffn_hidden = 24;
    model.experts->experts = 5;
  }
  if (qwen || name == "mixtral") {  // as the oracle has them
    model.norm_eps = 1e-5;
    model.rotary_base = 10000;
  }
  model.vocabulary = 97;
  model.max_positions = 32;
  model.hidden_dropout = 0;
  model.attention_dropout = 0;
  model.dtype = dtype;
  return model;
}

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double one : x) sum += one * one;
  return std::sqrt(sum);
}

const OptimizerOptions kAdamw{
    .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_grad = 1.0};

struct GoldenRun : test::HostMachine {
  GoldenRun(const std::string& name, DType dtype, bool reference,
            const OptimizerOptions& optimizer = kAdamw)
      : HostMachine([&](ThreadPool& pool) {
          return reference ? make_reference_kernels() : make_cpu_kernels(pool, test::chosen_isa());
        }),
        golden(std::string(PITON_SOURCE_DIR) + "/tests/golden/" + name + ".safetensors"),
        mesh(*world, MeshSizes{}),
        session(machine, mesh,
                {.model = golden_config(name, dtype),
                 .optimizer_options = optimizer,
                 .use = dtype != DType::kF64 ? SessionUse::kTraining : SessionUse::kGradients}) {
    test::set_golden_weights(session, golden, *stream);
  }

  MicroBatch batch() { return test::golden_batch(golden); }

  SafetensorsFile golden;
  Mesh mesh;
  Session session;
};

void expect_gradients(GoldenRun& run, double tolerance) {
  std::map<std::string, std::vector<double>> ours;
  double global = 0;
  for (Parameter* parameter : run.session.parameters()) {
    for (const Piece& piece : parameter->pieces) {
      ours[piece.name] =
          test::values(parameter->gradient.slice(0, piece.local_row, piece.extent[0]));
      const double one = norm(test::values(run.golden.tensor("gradient." + piece.name)));
      global += one * one;
    }
  }
  global = std::sqrt(global);
  std::size_t compared = 0;
  for (const SafetensorsEntry& entry : run.golden.entries()) {
    if (!entry.name.starts_with("gradient.")) continue;
    const std::string name = entry.name.substr(9);
    ASSERT_TRUE(ours.contains(name)) << name;
    const std::vector<double> wanted = test::values(run.golden.tensor(entry.name));
    const std::vector<double>& got = ours[name];
    ASSERT_EQ(got.size(), wanted.size()) << name;
    ++compared;
    // Adding a number to all scores of a row changes nothing: a key bias has no gradient.
    const bool turned = run.session.settings().model.positions == PositionKind::kRotary;
    if (name.ends_with("attention.key.bias") && !turned) {
      EXPECT_LE(norm(got), 1e-6 * global) << name;
      continue;
    }
    double product = 0;
    std::vector<double> difference(got.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      product += got[i] * wanted[i];
      difference[i] = got[i] - wanted[i];
    }
    EXPECT_LE(norm(difference), tolerance * norm(wanted)) << name;
    EXPECT_GE(product / (norm(got) * norm(wanted)), 1 - 1e-6) << name;
  }
  EXPECT_EQ(compared, ours.size());
}

class GoldenModels : public testing::TestWithParam<std::tuple<const char*, bool>> {};

TEST_P(GoldenModels, GiveTheLossAndTheGradientsOfPyTorch) {
  const auto [name, reference] = GetParam();
  GoldenRun run(name, DType::kF32, reference);
  const double loss = test::values(run.golden.tensor("loss"))[0];
  EXPECT_NEAR(run.session.gradients({run.batch()}, 0).loss, loss, 1e-5 * loss);
  expect_gradients(run, 1e-5);
}

TEST_P(GoldenModels, GiveTheLogitsOfPyTorch) {
  const auto [name, reference] = GetParam();
  GoldenRun run(name, DType::kF32, reference);
  const MicroBatch batch = run.batch();
  Inference inference(run.session.context(false), run.session.pipeline(), run.mesh,
                      run.session.settings().model);
  const Tensor logits = inference.logits(batch.tokens, batch.samples);
  const Tensor wanted = run.golden.tensor("logits");
  for (std::int64_t row = 0; row < wanted.dim(0); ++row) {
    for (std::int64_t column = 0; column < wanted.dim(1); ++column) {
      ASSERT_NEAR(logits.data<float>()[row * logits.dim(1) + column],
                  wanted.data<float>()[row * wanted.dim(1) + column], 2e-5)
          << row << ", " << column;
    }
  }
}

TEST_P(GoldenModels, FollowPyTorchThroughFiveSteps) {
  const auto [name, reference] = GetParam();
  GoldenRun run(name, DType::kF32, reference);
  const std::vector<double> losses = test::values(run.golden.tensor("losses"));
  const std::vector<double> norms = test::values(run.golden.tensor("norms"));
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const StepReport report = run.session.train_step({run.batch()}, 0, 1e-2);
    EXPECT_NEAR(report.loss, losses[step], 5e-5 * losses[step]) << "step " << step;
    EXPECT_NEAR(report.grad_norm, norms[step], 2e-4 * norms[step]) << "step " << step;
  }
}

// tests/golden/muon.txt: torch.optim.Muon, whose iteration did not round to bf16.
void expect_muon_losses(bool reference) {
  const std::map<std::string, std::pair<MuonScale, double>> scales{
      {"original", {MuonScale::kShapeScaling, 1}},
      {"match_rms_adamw", {MuonScale::kSpectral, 0.2}},
      {"spectral_unclamped", {MuonScale::kUnitRmsNorm, 1}}};
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/muon.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name, adjust, kind;
    bool nesterov = false;
    words >> name >> adjust >> nesterov >> kind;
    if (kind != "fp64") continue;
    ++cases;
    if (reference && cases % test::one_of(3) != 0) continue;
    SCOPED_TRACE(name + " " + adjust);
    OptimizerOptions options = kAdamw;
    options.kind = OptimizerKind::kMuon;
    options.muon.nesterov = nesterov;
    options.muon.scale = scales.at(adjust).first;
    options.muon.extra_scale = scales.at(adjust).second;
    GoldenRun run(name, DType::kF32, reference, options);
    for (int step = 0; step <= 10; ++step) {
      double torch = 0;
      words >> torch;
      const double loss = run.session.train_step({run.batch()}, 0, 1e-2).loss;
      EXPECT_NEAR(loss, torch, 1e-5 * torch) << "step " << step;
    }
    EXPECT_TRUE(words);
  }
  EXPECT_EQ(cases, 6);
}

TEST(MuonModels, FollowPyTorchThroughTenStepsOnTheCpu) { expect_muon_losses(false); }
TEST(MuonModels, FollowPyTorchThroughTenStepsOnTheReference) { expect_muon_losses(true); }

// tests/golden/optimizers.txt: torch.optim.AdamW and torch.optim.SGD, with and without momentum,
// decay and clipping.
TEST(OptimizerModels, FollowPyTorchThroughTenStepsOfAdamwAndSgd) {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/optimizers.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    for (const bool reference : {false, true}) {
      ++cases;
      if (reference && cases / 2 % test::one_of(3) != 0) continue;
      std::istringstream words(line);
      std::string name, kind;
      double rate = 0;
      OptimizerOptions options = kAdamw;
      words >> name >> kind >> rate >> options.sgd_momentum >> options.weight_decay >>
          options.clip_grad;
      SCOPED_TRACE(fmt::format("{} {} {} {}", name, kind, rate, reference ? "reference" : "cpu"));
      options.kind = kind == "sgd" ? OptimizerKind::kSgd : OptimizerKind::kAdam;
      std::vector<double> torch(21);
      for (double& one : torch) words >> one;
      ASSERT_TRUE(words);
      GoldenRun run(name, DType::kF32, reference, options);
      for (std::size_t step = 0; step <= 10; ++step) {
        const StepReport report = run.session.train_step({run.batch()}, 0, rate);
        EXPECT_NEAR(report.loss, torch[step], 1e-5 * torch[step]) << "step " << step;
        if (step == 10) break;
        const double norm = torch[11 + step];
        EXPECT_NEAR(report.grad_norm, norm, 1e-4 * norm) << "step " << step;
      }
    }
  }
  EXPECT_EQ(cases, 16);
}

// tests/golden/rates/decoupled_rates.txt: torch.optim.AdamW with other rates for embedding and
// head. They share one table in gpt2 and not in llama.
TEST(OptimizerModels, FollowPyTorchWithOtherRatesOfTheVocabulary) {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/rates/decoupled_rates.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    ++cases;
    std::istringstream words(line);
    std::string name;
    words >> name;
    SCOPED_TRACE(name);
    std::vector<GroupRates> rates(11);
    for (std::size_t step = 0; step < 10; ++step)
      words >> rates[step].base >> rates[step].vocabulary;
    std::vector<double> torch(21);
    for (double& one : torch) words >> one;
    ASSERT_TRUE(words);
    OptimizerOptions options = kAdamw;
    options.separate_rates = {RateGroup::kVocabulary};
    GoldenRun run(name, DType::kF32, false, options);
    for (std::size_t step = 0; step <= 10; ++step) {
      const StepReport report = run.session.train_step({run.batch()}, 0, rates[step]);
      EXPECT_NEAR(report.loss, torch[step], 1e-5 * torch[step]) << "step " << step;
      if (step == 10) break;
      EXPECT_NEAR(report.grad_norm, torch[11 + step], 1e-4 * torch[11 + step]) << "step " << step;
    }
  }
  EXPECT_EQ(cases, 2);
}

// tests/golden/cadam.txt: a plain statement of the rule in PyTorch. A sign is not continuous, so an
// element whose momentum is nearly 0 may step the other way: that changes the loss least.
TEST(CadamModels, FollowPyTorchThroughTenSteps) {
  std::ifstream file(std::string(PITON_SOURCE_DIR) + "/tests/golden/cadam.txt");
  int cases = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name != "gpt2" && name != "llama") continue;
    for (const bool reference : {false, true}) {
      SCOPED_TRACE(name + (reference ? " reference" : " cpu"));
      std::istringstream losses(line.substr(name.size()));
      OptimizerOptions options = kAdamw;
      options.kind = OptimizerKind::kCadam;
      GoldenRun run(name, DType::kF32, reference, options);
      for (int step = 0; step <= 10; ++step) {
        double torch = 0;
        losses >> torch;
        const double loss = run.session.train_step({run.batch()}, 0, 1e-3).loss;
        EXPECT_NEAR(loss, torch, 1e-5 * torch) << "step " << step;
      }
      EXPECT_TRUE(losses);
      ++cases;
    }
  }
  EXPECT_EQ(cases, 4);
}

INSTANTIATE_TEST_SUITE_P(Kernels, GoldenModels,
                         testing::Combine(testing::ValuesIn(kModels), testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) +
                                  (std::get<1>(info.param) ? "_reference" : "_cpu");
                         });

TEST(GoldenModelsInDouble, GiveTheLossAndTheGradientsOfPyTorch) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    GoldenRun run(name, DType::kF64, true);
    const double loss = test::values(run.golden.tensor("loss"))[0];
    // Transformers' RMS norm and softmax go through fp32 even in a float64 model; Bloom's softmax
    // too.
    const double allowed = std::string(name) == "gpt2" ? 1e-12 : 1e-7;
    EXPECT_NEAR(run.session.gradients({run.batch()}, 0).loss, loss, allowed * loss);
    expect_gradients(run, 1e-6);  // the golden gradients are stored in fp32
  }
}

TEST(GoldenModelsInBfloat16, StayNearPyTorch) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    GoldenRun run(name, DType::kBF16, false);
    const double loss = test::values(run.golden.tensor("loss"))[0];
    EXPECT_NEAR(run.session.gradients({run.batch()}, 0).loss, loss, 5e-3 * loss);
  }
}

}  // namespace
}  // namespace piton
