// Encoders of Hugging Face folders, models of an encoder and a decoder, and classifiers of texts:
// logits, hidden states, losses, every gradient and ten training steps equal those of Transformers
// (tests/golden/encoders and labels, made by tools/oracle/encoders.py and labels.py in float64). A
// decoder's command refuses an encoder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "api/model.h"
#include "checkpoint/load_values.h"
#include "checkpoint/safetensors.h"
#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "support/golden_huggingface.h"
#include "support/host_machine.h"
#include "support/temp_folder.h"
#include "support/tensors.h"

namespace piton {
namespace {

using test::encoder_folder;

constexpr const char* kEncoders[] = {"bert",    "bert-masked", "megatron-bert",
                                     "roberta", "t5",          "t5-v1.1"};

// Of tests/golden/labels: classifiers, also of decoders.
constexpr const char* kClassifiers[] = {"labels/bert",
                                        "labels/megatron-bert",
                                        "labels/roberta",
                                        "labels/xlm-roberta",
                                        "labels/qwen2",
                                        "labels/gpt2",
                                        "labels/gpt-neox",
                                        "labels/falcon",
                                        "labels/opt",
                                        "labels/bert-number",
                                        "labels/qwen2-number",
                                        "labels/bert-several",
                                        "labels/roberta-several",
                                        "labels/qwen2-several"};

std::filesystem::path folder_of_golden(const std::string& name) {
  return name.starts_with("labels/") ? encoder_folder("bert").parent_path().parent_path() / name
                                     : encoder_folder(name);
}

std::vector<const char*> all_names() {
  std::vector<const char*> names(std::begin(kEncoders), std::end(kEncoders));
  names.insert(names.end(), std::begin(kClassifiers), std::end(kClassifiers));
  return names;
}

std::vector<std::int32_t> ints_of(const Tensor& tensor) {
  return {tensor.data<std::int32_t>(), tensor.data<std::int32_t>() + tensor.elements()};
}

double number(const SafetensorsFile& file, const std::string& name, std::int64_t index = 0) {
  return test::value_at(file.tensor(name), index);
}

// A session with the weights of a folder, and the batch that Transformers had.
struct EncoderRun {
  explicit EncoderRun(const std::string& name, DType dtype = DType::kF32)
      : source(folder_of_golden(name)), expected(folder_of_golden(name) / "expected.safetensors") {
    ModelConfig config = source.model();
    config.dtype = dtype;
    config.hidden_dropout = config.attention_dropout = 0;
    session.emplace(machine.machine, mesh,
                    SessionSettings{.model = config,
                                    .optimizer_options = {.beta1 = 0.9,
                                                          .beta2 = 0.95,
                                                          .eps = 1e-8,
                                                          .weight_decay = 0.1,
                                                          .clip_grad = 1.0,
                                                          .initial_loss_scale = 1024}});
    load_weights(source, {.parameters = session->parameters(), .sharded = &session->sharded()},
                 {mesh, machine.device, machine.arena, *machine.stream});
    session->publish_values();
    const Tensor tokens = expected.tensor("tokens");
    batch.samples = tokens.dim(0);
    batch.labels = ints_of(expected.tensor("labels"));
    if (config.encoder_decoder) {
      set_source(ints_of(tokens));
    } else {
      batch.tokens = ints_of(tokens);
      if (config.encoder) batch.types = ints_of(expected.tensor("types"));
      batch.segments = ints_of(expected.tensor("segments"));
    }
    batch.sequence = std::ssize(batch.tokens) / batch.samples;
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      batch.positions.push_back(static_cast<std::int32_t>(i) %
                                static_cast<std::int32_t>(batch.sequence));
      batch.loss_mask.push_back(batch.labels[i] == kNoLabel ? 0.0F : 1.0F);
    }
    if (config.regression) {
      const std::vector<double> targets = test::values(expected.tensor("targets"));
      batch.targets.assign(targets.begin(), targets.end());
    }
    if (config.several_labels) {
      const std::vector<double> sets = test::values(expected.tensor("sets"));
      batch.label_sets.assign(sets.begin(), sets.end());
    }
    if (has_pairs()) batch.pair_labels = ints_of(expected.tensor("pair_labels"));
  }

  bool has_pairs() const {
    const ModelConfig& config = source.model();
    return config.encoder && config.encoder->pair_head;
  }

  void set_source(const std::vector<std::int32_t>& tokens) {
    const std::vector<std::int32_t> segments = ints_of(expected.tensor("segments"));
    batch.tokens = ints_of(expected.tensor("decoder"));
    const auto samples = static_cast<std::size_t>(batch.samples);
    const std::size_t length = tokens.size() / samples;
    batch.source = {.sequence = static_cast<std::int64_t>(length), .tokens = tokens};
    for (std::size_t i = 0; i < samples; ++i) {
      const auto begin = segments.begin() + static_cast<std::ptrdiff_t>(i * length);
      batch.source.lengths.push_back(static_cast<std::int32_t>(
          std::count(begin, begin + static_cast<std::ptrdiff_t>(length), 0)));
    }
  }

  // Logits and hidden states of all rows.
  ChunkOutput outputs() {
    std::vector<ModelInput> inputs = {session->upload(batch, {})};
    inputs[0].wanted = {.loss = false, .logits = true, .hidden = true};
    ChunkOutput result;
    session->pipeline().forward(session->context(false), inputs,
                                [&](int, ChunkOutput& output) { result = output; });
    machine.stream->synchronize();
    return result;
  }

  test::HostMachine machine;
  HfSource source;
  SafetensorsFile expected;
  Mesh mesh{*machine.world, MeshSizes{}};
  std::optional<Session> session;
  MicroBatch batch;
};

double worst_difference(const EncoderRun& run, const Tensor& got, const Tensor& wanted) {
  const std::int64_t rows = std::ssize(run.batch.tokens);
  const std::int64_t columns = wanted.elements() / rows;
  double worst = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<std::int32_t>& segments = run.batch.segments;
    if (!segments.empty() && segments[static_cast<std::size_t>(row)] < 0) continue;  // padding
    for (std::int64_t i = 0; i < columns; ++i) {
      worst = std::max(worst, std::abs(test::value_at(got, row * got.dim(1) + i) -
                                       test::value_at(wanted, row * columns + i)));
    }
  }
  return worst;
}

TEST(HuggingFaceEncoder, GivesTheLogitsAndTheLossOfTransformers) {
  for (const char* name : kEncoders) {
    SCOPED_TRACE(name);
    EncoderRun run(name);
    const ChunkOutput output = run.outputs();
    EXPECT_LT(worst_difference(run, output.logits, run.expected.tensor("logits")), 1e-4);
    EXPECT_LT(worst_difference(run, output.hidden, run.expected.tensor("hidden")), 1e-4);
    const Session::Evaluation found = run.session->evaluate({run.batch});
    const double loss = number(run.expected, "loss");
    EXPECT_NEAR(found.loss_sum / found.loss_tokens, loss, 1e-5 * loss);
    if (!run.has_pairs()) {
      EXPECT_TRUE(found.figures.empty());
      continue;
    }
    const double words = number(run.expected, "words");
    ASSERT_EQ(found.figures.size(), 2U);
    EXPECT_EQ(found.figures[0].name, "masked_lm_loss");
    EXPECT_NEAR(found.figures[0].mean(), words, 1e-5 * words);
    EXPECT_EQ(found.figures[1].name, "sop_loss");
    EXPECT_NEAR(found.figures[1].mean(), loss - words, 1e-5 * loss);
  }
}

TEST(HuggingFaceClassifier, GivesTheLogitsAndTheLossOfTransformers) {
  for (const char* name : kClassifiers) {
    SCOPED_TRACE(name);
    EncoderRun run(name);
    const bool regression = run.source.model().regression;
    EXPECT_EQ(run.source.model().label_names,
              regression ? std::vector<std::string>{}
                         : (std::vector<std::string>{"sad", "so so", "glad"}));
    const auto logits = run.session->label_logits({run.batch}).front();
    const Tensor wanted = run.expected.tensor("logits");
    ASSERT_EQ(std::ssize(logits), wanted.dim(0));
    LabelCounts counts;
    std::int64_t text = 0;
    for (const std::int32_t label : run.batch.labels) {
      if (label == kNoLabel) continue;
      const std::vector<float>& found = logits[static_cast<std::size_t>(text)];
      ASSERT_EQ(std::ssize(found), wanted.dim(1));
      for (std::int64_t i = 0; i < wanted.dim(1); ++i) {
        EXPECT_NEAR(found[static_cast<std::size_t>(i)],
                    test::value_at(wanted, text * wanted.dim(1) + i), 1e-4);
      }
      if (run.source.model().several_labels) {
        const auto width = static_cast<std::size_t>(wanted.dim(1));
        counts.add_set(std::span(run.batch.label_sets).subspan(text * width, width), found);
      } else if (!regression) {
        counts.add(label, largest(found), wanted.dim(1));
      }
      ++text;
    }
    const Session::Evaluation evaluation = run.session->evaluate({run.batch});
    const double loss = number(run.expected, "loss");
    EXPECT_NEAR(evaluation.loss_sum / evaluation.loss_tokens, loss, 1e-5 * loss);
    EXPECT_EQ(evaluation.labels.wanted, counts.wanted);
    EXPECT_EQ(evaluation.labels.predicted, counts.predicted);
    EXPECT_EQ(evaluation.labels.right, counts.right);
    EXPECT_EQ(evaluation.labels.exact, counts.exact);
    if (regression) {
      EXPECT_NEAR(evaluation.labels.mean_square(), loss, 1e-5 * loss);
    }
  }
}

// bf16 and fp16 compute the same to their precision.
TEST(HuggingFaceEncoder, ComputesInSixteenBits) {
  for (const char* name : all_names()) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      EncoderRun run(name, dtype);
      const double loss = number(run.expected, "loss");
      EXPECT_NEAR(run.session->gradients({run.batch}, 0).loss, loss, 0.05 * loss) << name;
      EXPECT_FALSE(run.session->train_step({run.batch}, 0, 1e-3).skipped) << name;
    }
  }
}

// The tensors of gradients.safetensors, read as the weights of a model are.
class GradientsInFolder {
 public:
  explicit GradientsInFolder(const std::filesystem::path& folder) {
    const SafetensorsFile file(folder / "gradients.safetensors");
    std::map<std::string, Tensor> tensors;
    for (const SafetensorsEntry& entry : file.entries()) {
      if (entry.name != "losses" && entry.name != "norms")
        tensors[entry.name] = file.tensor(entry.name);
    }
    std::filesystem::copy_file(folder / "config.json", folder_ / "config.json");
    write_safetensors(folder_ / "model.safetensors", tensors);
    source_.emplace(folder_.path());
  }
  std::vector<CanonicalTensor> tensors() const { return source_->tensors(TensorKind::kWeight); }
  std::vector<double> of(const CanonicalTensor& tensor) {
    std::vector<double> values(static_cast<std::size_t>(tensor.shape.elements()));
    source_->read(tensor.name, whole_run(tensor.shape), DType::kF64,
                  reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

 private:
  TempFolder folder_;
  std::optional<HfSource> source_;
};

double sum_of_products(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(HuggingFaceEncoder, GivesEveryGradientOfTransformers) {
  for (const char* name : all_names()) {
    EncoderRun run(name);
    run.session->gradients({run.batch}, 0);
    std::map<std::string, std::vector<double>> ours;
    for (const Parameter* parameter : run.session->parameters()) {
      const std::vector<double> values = test::values(parameter->gradient);
      const std::int64_t columns = parameter->shape.ndim() > 1 ? parameter->shape[1] : 1;
      for (const Piece& piece : parameter->pieces) {
        const auto begin = values.begin() + piece.local_row * columns;
        ours[piece.name] = {begin, begin + piece.extent.elements()};
      }
    }
    GradientsInFolder wanted(folder_of_golden(name));
    EXPECT_EQ(ours.size(), wanted.tensors().size()) << name;
    double all = 0;
    for (const CanonicalTensor& tensor : wanted.tensors())
      all += sum_of_products(wanted.of(tensor), wanted.of(tensor));
    for (const CanonicalTensor& tensor : wanted.tensors()) {
      ASSERT_TRUE(ours.contains(tensor.name)) << name << " " << tensor.name;
      const std::vector<double> right = wanted.of(tensor);
      const std::vector<double>& got = ours.at(tensor.name);
      ASSERT_EQ(got.size(), right.size()) << name << " " << tensor.name;
      // Adding a number to all scores of a row changes nothing: a key bias has no gradient, unless
      // it is turned by its position.
      const bool turned = run.source.model().positions == PositionKind::kRotary;
      if (tensor.name.ends_with("attention.key.bias") && !turned) {
        EXPECT_LE(sum_of_products(got, got), 1e-12 * all) << name;
        continue;
      }
      const double lengths = std::sqrt(sum_of_products(right, right) * sum_of_products(got, got));
      EXPECT_GE(sum_of_products(right, got), (1 - 1e-6) * lengths) << name << " " << tensor.name;
      EXPECT_NEAR(sum_of_products(got, got), sum_of_products(right, right),
                  1e-4 * sum_of_products(right, right))
          << name << " " << tensor.name;
    }
  }
}

TEST(HuggingFaceEncoder, TrainsAsInPyTorch) {
  for (const char* name : all_names()) {
    EncoderRun run(name);
    const SafetensorsFile golden(folder_of_golden(name) / "gradients.safetensors");
    for (std::int64_t step = 0; step < golden.tensor("losses").elements(); ++step) {
      const StepReport report = run.session->train_step({run.batch}, 0, 3e-3);
      const double loss = number(golden, "losses", step);
      const double norm = number(golden, "norms", step);
      EXPECT_NEAR(report.loss, loss, 1e-5 * loss) << name << ", step " << step;
      EXPECT_NEAR(report.grad_norm, norm, 1e-4 * norm) << name << ", step " << step;
    }
  }
}

TEST(HuggingFaceEncoder, IsRefusedWhereADecoderIsWanted) {
  test::HostMachine machine;
  EXPECT_THAT(
      message_of(Fault::kData, [&] { Model::load(machine.machine, encoder_folder("bert"), {}); }),
      testing::HasSubstr("is an encoder (bert), which predicts masked words and continues "
                         "no text; wanted a decoder"));
}

}  // namespace
}  // namespace piton
