// Models of Hugging Face folders, loaded through the public interface: logits, greedy tokens,
// gradients and ten training steps equal those of Transformers (tests/golden/huggingface, made by
// tools/oracle/huggingface.py in float64).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "api/model.h"
#include "checkpoint/load_values.h"
#include "checkpoint/safetensors.h"
#include "huggingface/hf_source.h"
#include "nn/expert_mlp.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/host_machine.h"
#include "support/temp_folder.h"
#include "support/tensors.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

using test::golden_folder;
using test::HostMachine;

std::vector<std::int32_t> token_ids_of(const Tensor& tensor) {
  return {tensor.data<std::int32_t>(), tensor.data<std::int32_t>() + tensor.elements()};
}

TEST(HuggingFaceModel, GivesTheLogitsAndTheGreedyTextOfTransformers) {
  for (const std::string& name : test::golden_folders()) {
    HostMachine machine;
    test::HfFolder folder(name);  // whose texts do not end
    folder.edit_config([](nlohmann::ordered_json& config) { config["eos_token_id"] = nullptr; });
    const auto model = Model::load(machine.machine, folder.path(), {});
    const SafetensorsFile expected(golden_folder(name) / "expected.safetensors");
    const std::vector<std::int32_t> tokens = token_ids_of(expected.tensor("tokens"));
    const Tensor wanted = expected.tensor("logits");
    const Tensor got = model->logits(tokens);
    ASSERT_EQ(got.shape(), wanted.shape());
    double worst = 0;
    for (std::int64_t i = 0; i < got.elements(); ++i)
      worst = std::max(worst, std::abs(test::value_at(got, i) - test::value_at(wanted, i)));
    EXPECT_LT(worst, 1e-4) << name;
    const std::vector<std::int32_t> greedy = token_ids_of(expected.tensor("greedy"));
    std::vector<std::int32_t> written;
    model->generate(std::span(tokens).first(7),
                    {.max_new_tokens = std::ssize(greedy), .greedy = true},
                    [&](const GeneratedToken& token) {
                      written.push_back(token.id);
                      return true;
                    });
    EXPECT_EQ(written, greedy) << name;
  }
}

// tools/oracle/quantized_files.py
TEST(HuggingFaceModel, InMxfp4GivesTheLogitsOfTransformers) {
  const auto folder = std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/quantized/gpt-oss";
  HostMachine machine;
  const auto model = Model::load(machine.machine, folder, {});
  const SafetensorsFile expected(folder / "expected.safetensors");
  const Tensor wanted = expected.tensor("logits");
  const Tensor got = model->logits(token_ids_of(expected.tensor("tokens")));
  ASSERT_EQ(got.shape(), wanted.shape());
  for (std::int64_t i = 0; i < got.elements(); ++i)
    ASSERT_NEAR(test::value_at(got, i), test::value_at(wanted, i), 1e-4) << i;
}

// gradients.safetensors as a folder of a model whose weights are those gradients, so that they are
// read as weights are.
class GradientsOfTransformers {
 public:
  explicit GradientsOfTransformers(const std::string& name)
      : file_(golden_folder(name) / "gradients.safetensors") {
    std::map<std::string, Tensor> tensors;
    for (const SafetensorsEntry& entry : file_.entries()) {
      const bool other = entry.name == "loss" || entry.name == "losses" || entry.name == "norms" ||
                         entry.name == "batches";
      if (!other) tensors[entry.name] = file_.tensor(entry.name);
    }
    std::filesystem::copy_file(golden_folder(name) / "config.json", folder_ / "config.json");
    write_safetensors(folder_ / "model.safetensors", tensors);
    source_.emplace(folder_.path());
  }
  double loss() const { return test::value_at(file_.tensor("loss"), 0); }
  // Without biases of choices, of which nothing in the loss is a derivative.
  std::vector<CanonicalTensor> tensors() const {
    std::vector<CanonicalTensor> all = source_->tensors(TensorKind::kWeight);
    std::erase_if(all, [](const CanonicalTensor& one) { return is_choice_bias(one.name); });
    return all;
  }
  std::vector<double> gradient(const CanonicalTensor& tensor) {
    std::vector<double> values(static_cast<std::size_t>(tensor.shape.elements()));
    source_->read(tensor.name, whole_run(tensor.shape), DType::kF64,
                  reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

 private:
  TempFolder folder_;
  SafetensorsFile file_;
  std::optional<HfSource> source_;
};

double dot_product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(HuggingFaceModel, GivesEveryGradientOfTransformers) {
  for (const std::string& name : test::golden_folders()) {
    HostMachine machine;
    const auto model = Model::load(machine.machine, golden_folder(name), {});
    const SafetensorsFile expected(golden_folder(name) / "expected.safetensors");
    const std::vector<std::int32_t> tokens = token_ids_of(expected.tensor("tokens"));
    GradientsOfTransformers wanted(name);
    EXPECT_NEAR(-model->score(tokens).sum() / static_cast<double>(tokens.size() - 1), wanted.loss(),
                1e-5 * wanted.loss())
        << name;
    const std::map<std::string, Tensor> ours = model->gradients({tokens});
    EXPECT_EQ(ours.size(), wanted.tensors().size()) << name;
    double all = 0;
    for (const CanonicalTensor& tensor : wanted.tensors()) {
      const std::vector<double> right = wanted.gradient(tensor);
      all += dot_product(right, right);
    }
    for (const CanonicalTensor& tensor : wanted.tensors()) {
      ASSERT_TRUE(ours.contains(tensor.name)) << name << " " << tensor.name;
      const std::vector<double> right = wanted.gradient(tensor);
      const std::vector<double> got = test::values(ours.at(tensor.name));
      // Adding a number to all scores of a row changes nothing: a key bias has no gradient.
      const bool turned = model->config().positions == PositionKind::kRotary;
      if (tensor.name.ends_with("attention.key.bias") && !turned) {
        EXPECT_LE(dot_product(got, got), 1e-12 * all) << name;
        continue;
      }
      const double lengths = std::sqrt(dot_product(right, right) * dot_product(got, got));
      EXPECT_GE(dot_product(right, got), (1 - 1e-6) * lengths) << name << " " << tensor.name;
      EXPECT_NEAR(dot_product(got, got), dot_product(right, right),
                  1e-4 * dot_product(right, right))
          << name << " " << tensor.name;
    }
  }
}

TEST(HuggingFaceModel, TrainsAsInPyTorch) {
  for (const char* name :
       {"gpt2", "llama", "mixtral", "qwen3-moe", "qwen2-moe", "glm4-moe", "deepseek-v2"}) {
    HostMachine machine;
    HfSource source(golden_folder(name));
    ModelConfig config = source.model();
    config.hidden_dropout = config.attention_dropout = 0;
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(
        machine.machine, mesh,
        {.model = config,
         .optimizer_options = {
             .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .clip_grad = 1.0}});
    load_weights(source, {.parameters = session.parameters(), .sharded = &session.sharded()},
                 {mesh, machine.device, machine.arena, *machine.stream});
    session.publish_values();
    const SafetensorsFile golden(golden_folder(name) / "gradients.safetensors");
    const Tensor batches = golden.tensor("batches");  // [steps, samples, s + 1]
    const std::int64_t samples = batches.dim(1);
    const std::int64_t length = batches.dim(2);
    const std::vector<std::int32_t> ids = token_ids_of(batches);
    for (std::int64_t step = 0; step < batches.dim(0); ++step) {
      MicroBatch batch{.samples = samples, .sequence = length - 1};
      for (std::int64_t sample = 0; sample < samples; ++sample) {
        const auto row = ids.begin() + (step * samples + sample) * length;
        batch.tokens.insert(batch.tokens.end(), row, row + length - 1);
        batch.labels.insert(batch.labels.end(), row + 1, row + length);
        for (std::int64_t i = 0; i < length - 1; ++i)
          batch.positions.push_back(static_cast<std::int32_t>(i));
      }
      batch.loss_mask.assign(batch.tokens.size(), 1.0F);
      const StepReport report = session.train_step({batch}, 0, 3e-3);
      const double loss = test::value_at(golden.tensor("losses"), step);
      const double norm = test::value_at(golden.tensor("norms"), step);
      EXPECT_NEAR(report.loss, loss, 1e-5 * loss) << name << ", step " << step;
      EXPECT_NEAR(report.grad_norm, norm, 1e-4 * norm) << name << ", step " << step;
    }
  }
}

// tools/oracle/neftune.py. Factors of embeddings multiply the noise (Granite), or do not (Gemma).
TEST(HuggingFaceModel, HasTheLossOfTransformersWithNoiseOnItsEmbeddings) {
  std::ifstream golden(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/neftune.txt");
  std::string origin, name;
  std::getline(golden, origin);
  int cases = 0;
  for (double alpha = 0, loss = 0, norm = 0; golden >> name >> alpha >> loss >> norm; ++cases) {
    HostMachine machine;
    HfSource source(golden_folder(name));
    ModelConfig config = source.model();
    config.hidden_dropout = config.attention_dropout = 0;
    Mesh mesh(*machine.world, MeshSizes{});
    Session session(machine.machine, mesh,
                    {.model = config, .embedding_noise = alpha, .use = SessionUse::kGradients});
    load_weights(source, {.parameters = session.parameters(), .sharded = &session.sharded()},
                 {mesh, machine.device, machine.arena, *machine.stream});
    session.publish_values();
    const SafetensorsFile expected(golden_folder(name) / "expected.safetensors");
    MicroBatch batch{.samples = 1, .sequence = 24, .sample_index = 2};
    batch.tokens = token_ids_of(expected.tensor("tokens"));
    batch.tokens.resize(24);
    batch.labels.assign(batch.tokens.begin() + 1, batch.tokens.end());
    batch.labels.push_back(kNoLabel);
    batch.loss_mask.assign(24, 1.0F);
    batch.loss_mask.back() = 0;
    batch.positions.resize(24);
    std::iota(batch.positions.begin(), batch.positions.end(), 0);
    const double plain = session.evaluate({batch}).loss_sum / 23;
    const double noisy = session.gradients({batch}, 5).loss;
    EXPECT_NEAR(noisy, loss, 1e-6 * loss) << name;
    EXPECT_GT(std::abs(noisy - plain), 1e-3) << name << ": without noise in evaluations";
    for (const Parameter* parameter : session.parameters()) {
      if (parameter->name != "embedding.token.weight") continue;
      const std::vector<double> gradient = test::values(parameter->gradient);
      EXPECT_NEAR(std::sqrt(dot_product(gradient, gradient)), norm, 1e-5 * norm) << name;
    }
  }
  EXPECT_EQ(cases, 5);
}

TEST(HuggingFaceModel, WhoseTokenizerHasMoreIdsThanItsTableHasRowsIsRefused) {
  HostMachine machine;
  EXPECT_THAT(
      message_of(
          Fault::kData,
          [&] { Model::load(machine.machine, golden_folder("llama"), {.type = "ByteTokenizer"}); }),
      testing::HasSubstr("the tokenizer has 257 ids, the model's table 131 rows"));
}

}  // namespace
}  // namespace piton
