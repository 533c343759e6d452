// A model is the same in every format.
#include "model_files/opened_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.h"
#include "checkpoint/write_source.h"
#include "convert/convert.h"
#include "gguf/gguf_source.h"
#include "huggingface/config_keys.h"
#include "huggingface/files/origin.h"
#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "support/trainer_run.h"
#include "train/run/resume_rules.h"
#include "unit/convert/same_tensors.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

using test::HfFolder;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
namespace fs = std::filesystem;

std::vector<float> values_of(OpenedModel& model, const std::string& name) {
  for (const CanonicalTensor& one : model.source->tensors(TensorKind::kWeight)) {
    if (one.name != name) continue;
    std::vector<float> values(static_cast<std::size_t>(one.shape.elements()));
    model.source->read(name, whole_run(one.shape), DType::kF32,
                       reinterpret_cast<std::byte*>(values.data()));
    return values;
  }
  ADD_FAILURE() << model.source->where() << " has no " << name;
  return {};
}

class OpenModel : public testing::Test {
 protected:
  // The golden model in another format.
  fs::path converted(const fs::path& from, const std::string& to, const std::string& name,
                     const std::string& dtype = "") {
    ConvertOptions options{.load = from.string(),
                           .save = (dir_ / name).string(),
                           .save_model_type = to,
                           .dtype = dtype};
    options.arguments = to == "mg";
    SilentProgress silent;
    convert(own_.machine(), options, silent);
    return dir_ / name;
  }

  TempFolder dir_;
  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
  test::SmallMachine own_{*world_};
};

TEST_F(OpenModel, FindsTheSameModelInEveryFormat) {
  HfFolder folder("llama");
  write_text_file(folder.path() / "chat_template.jinja", "{{ a }}");
  struct Form {
    const char* to;
    const char* name;
    ModelFormat format;
    const char* kind;
  };
  constexpr Form kForms[] = {{"", "", ModelFormat::kHuggingFace, "llama"},
                             {"piton", "run", ModelFormat::kPiton, "checkpoint of Piton"},
                             {"mg", "mg", ModelFormat::kMegatron, "checkpoint of Megatron"},
                             {"gguf", "x.gguf", ModelFormat::kGguf, "GGUF file"}};
  OpenedModel wanted = open_model({.path = folder.path()});
  for (const Form& form : kForms) {
    SCOPED_TRACE(form.kind);
    const fs::path path =
        *form.to == '\0' ? folder.path() : converted(folder.path(), form.to, form.name);
    OpenedModel got = open_model({.path = path});
    EXPECT_EQ(got.format, form.format);
    EXPECT_EQ(got.kind, form.kind);
    EXPECT_EQ(got.name, path.stem());
    EXPECT_EQ(model_difference(wanted.model, got.model), "");
    EXPECT_EQ(got.model.dtype, DType::kF32);
    EXPECT_EQ(got.weights_dtype, DType::kF32);
    EXPECT_EQ(family_of(got), "llama");
    EXPECT_TRUE(got.facts.contains(kOriginFact));
    EXPECT_TRUE(got.describes_model);
    EXPECT_FALSE(got.has_optimizer);
    EXPECT_FALSE(got.run) << "weights alone start a new run";
    EXPECT_TRUE(got.tokenizer.empty());
    EXPECT_EQ(values_of(got, "layers.1.attention.query.weight"),
              values_of(wanted, "layers.1.attention.query.weight"));
    EXPECT_EQ(got.huggingface != nullptr, got.format == ModelFormat::kHuggingFace);
    EXPECT_EQ(got.megatron != nullptr, got.format == ModelFormat::kMegatron);
    EXPECT_EQ(got.gguf != nullptr, got.format == ModelFormat::kGguf);
  }
}

TEST_F(OpenModel, ComputesInTheTypeOfTheFormatOrOfTheWeights) {
  HfFolder folder("llama");
  const fs::path half = converted(folder.path(), "hf", "half", "bf16");
  for (const char* to : {"mg", "gguf", "piton"}) {
    const fs::path path =
        converted(half, to, std::string("half-") + to + (std::string(to) == "gguf" ? ".gguf" : ""));
    const OpenedModel opened = open_model({.path = path});
    EXPECT_EQ(opened.model.dtype, DType::kBF16) << to;
    EXPECT_EQ(opened.weights_dtype, DType::kBF16) << to;
  }
  folder.edit_config([](nlohmann::ordered_json& config) { config["dtype"] = "bfloat16"; });
  const OpenedModel opened = open_model({.path = folder.path()});
  EXPECT_EQ(opened.model.dtype, DType::kBF16) << "as config.json says";
  EXPECT_EQ(opened.weights_dtype, DType::kF32);
}

TEST_F(OpenModel, HasTheTemplatesAndTheTokenizerOfItsFolder) {
  HfFolder folder("llama");
  write_text_file(folder.path() / "vocab.txt", "[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nto\nbe\n");
  write_text_file(folder.path() / "tokenizer_config.json", R"({"chat_template": "{{ a }}"})");
  for (const fs::path& path : {folder.path(), converted(folder.path(), "mg", "mg"),
                               converted(folder.path(), "piton", "run")}) {
    const OpenedModel opened = open_model({.path = path});
    EXPECT_EQ(open_tokenizer_of(opened)->vocabulary_size(), 7) << path;
    const auto& templates = opened.chat_templates.files.templates;
    ASSERT_EQ(templates.size(), 1U) << path;
    EXPECT_EQ(templates[0].name, "default");
    EXPECT_EQ(templates[0].text, "{{ a }}");
  }
}

TEST_F(OpenModel, OfARunIsItsNewestCheckpointWithItsFacts) {
  test::write_small_corpus(dir_ / "corpus");
  const fs::path run = dir_ / "run";
  {
    Trainer trainer(
        own_.machine(),
        test::small_options(dir_ / "corpus", {"--save", run.string(), "--ema-decay", "0.5"}), {});
    trainer.step();
    trainer.save();
    trainer.step();
    trainer.save();
  }
  const auto ranks = make_group_of_all(*world_, "test");
  OpenedModel newest = open_model({.path = run, .ranks = ranks.get()});
  EXPECT_EQ(newest.source->where(), (run / "iter_0000002").string());
  EXPECT_EQ(newest.iteration, 2);
  EXPECT_EQ(newest.model.vocabulary, 200);
  EXPECT_TRUE(newest.has_optimizer);
  EXPECT_TRUE(newest.origin.is_null());
  EXPECT_THAT(newest.facts, Contains(Pair("train.kernels", own_.machine().kernels.name())));
  EXPECT_EQ(open_model({.path = run / "iter_0000001"}).iteration, 1);
  OpenedModel average = open_model({.path = run, .average = true});
  const std::string name = "layers.0.mlp.down.weight";
  EXPECT_NE(values_of(average, name), values_of(newest, name));
  // Bytes are compared with their hashes when they are read.
  const fs::path file = run / "iter_0000002/model-00001.safetensors";
  std::string bytes = read_text_file(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_text_file(file, bytes);
  OpenedModel changed = open_model({.path = run});
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           for (const auto& one : changed.source->tensors(TensorKind::kWeight))
                             values_of(changed, one.name);
                         }),
              HasSubstr("its bytes were changed"));
}

TEST_F(OpenModel, RefusesWhatIsNoModel) {
  const auto refusal = [&](Fault fault, const fs::path& path, bool average = false) {
    return message_of(fault, [&] { open_model({.path = path, .average = average}); });
  };
  EXPECT_THAT(refusal(Fault::kData, dir_ / "absent"),
              HasSubstr("there is no such folder, wanted the folder of a run or of a model, or a "
                        "GGUF file"));
  write_text_file(dir_ / "text.txt", "words");
  EXPECT_THAT(refusal(Fault::kData, dir_ / "text.txt"),
              HasSubstr("text.txt: wanted the folder of a model, or a GGUF file"));
  EXPECT_THAT(refusal(Fault::kData, dir_.path()), HasSubstr("no checkpoint"));
  const fs::path folder = test::golden_folder("llama");
  EXPECT_THAT(refusal(Fault::kUsage, folder, true), HasSubstr("which has no moving average"));
  EXPECT_THAT(refusal(Fault::kUsage, converted(folder, "piton", "run"), true),
              HasSubstr("has no moving average: it was trained without --ema-decay, or saved by "
                        "--no-save-optim"));
  // Other tensors than config.toml describes.
  HfSource source(folder);
  PretrainOptions options;
  options.model = ModelOptions::of(source.model());
  options.model.layers = 3;
  write_checkpoint(dir_ / "other", source, {}, configuration_of(options));
  EXPECT_THAT(refusal(Fault::kData, dir_ / "other"), HasSubstr("layers.2."));
}

TEST_F(OpenModel, OfMegatronHasTheStateOfItsRun) {
  const fs::path folder = PITON_SOURCE_DIR "/tests/golden/megatron/resume/llama";
  OpenedModel opened = open_model({.path = folder});
  ASSERT_TRUE(opened.run);
  EXPECT_EQ(opened.run->iteration, 6);
  EXPECT_EQ(opened.iteration, 6);
  EXPECT_EQ(opened.run->steps, 0);
  EXPECT_THAT(opened.notes, Contains(HasSubstr("optimizer's state stays behind")));
  EXPECT_TRUE(opened.source->tensors(TensorKind::kOptimizer).empty());
  open_optimizer(opened);
  EXPECT_EQ(opened.run->steps, 6);
  EXPECT_FALSE(opened.source->tensors(TensorKind::kOptimizer).empty());
  EXPECT_THAT(opened.notes, testing::Not(Contains(HasSubstr("stays behind"))));
}

}  // namespace
}  // namespace piton
