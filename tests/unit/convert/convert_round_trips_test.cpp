// Every family from its Hugging Face folder through Megatron's divisions and back: each tensor of
// the files has the name, type, shape and bytes that it had. What Megatron's arguments have no
// words for is refused in one line that names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convert/convert.h"
#include "huggingface/family.h"
#include "huggingface/hf_source.h"
#include "megatron/megatron_source.h"
#include "support/errors.h"
#include "support/family_folder.h"
#include "support/host_machine.h"
#include "support/sampled.h"
#include "support/trainer_run.h"
#include "unit/convert/same_tensors.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class RoundTrip : public testing::Test {
 protected:
  fs::path folder_of(const std::string& family, const std::function<void(Json&)>& edit = {}) {
    const fs::path folder = dir_ / fmt::format("{}-{}", family, next_++);
    test::write_family_folder(folder, family, edit);
    return folder;
  }

  fs::path converted(const fs::path& load, const std::string& to,
                     const std::function<void(ConvertOptions&)>& set = {}) {
    const fs::path save = dir_ / fmt::format("{}-{}", to, next_++);
    ConvertOptions options{.load = load.string(), .save = save.string(), .save_model_type = to};
    if (set) set(options);
    SilentProgress silent;
    report_ = convert(one_.machine, options, silent);
    EXPECT_TRUE(report_.verified && report_.verified->equal());
    return save;
  }

  static void expect_same_files(const fs::path& a, const fs::path& b) {
    test::expect_same_tensors(a, b);
    EXPECT_EQ(HfSource(a).model(), HfSource(b).model());
    EXPECT_EQ(hf_family(HfSource(a).config()).model_types,
              hf_family(HfSource(b).config()).model_types);
  }

  // By day in one tree: another one each time.
  void goes_round(const fs::path& source) {
    const std::vector<const char*> trees = {"legacy", "local", "transformer_engine"};
    for (const char* tree : test::sampled(trees, 3, rounds_++)) {
      SCOPED_TRACE(fmt::format("{} {}", source.filename().string(), tree));
      fs::path at = source;
      for (const auto& [tensor, pipeline, stage] :
           {std::array{2, 2, 0}, std::array{4, 1, 0}, std::array{2, 2, 1}, std::array{1, 1, 0}}) {
        at = converted(at, "mg", [&](ConvertOptions& o) {
          o.tensor = tensor;
          o.pipeline = pipeline;
          o.layers_of_virtual_stage = stage;
          o.core = std::string(tree) != "legacy";
          if (o.core) o.core_layers = tree;
          o.vocabulary_multiple = 16;
        });
        const MegatronSource megatron(at);
        EXPECT_EQ(megatron.layout().tensor, tensor);
        EXPECT_EQ(megatron.layout().pipeline, pipeline);
        EXPECT_EQ(megatron.layout().chunks, stage == 0 ? 1 : 2);
      }
      expect_same_files(source, converted(at, "hf"));
    }
  }

  // In the modules of Megatron-core, of tensor and pipeline ranks.
  void goes_through_core(const fs::path& source,
                         const std::vector<std::pair<int, int>>& divisions) {
    for (const char* tree : {"local", "transformer_engine"}) {
      SCOPED_TRACE(fmt::format("{} {}", source.filename().string(), tree));
      fs::path at = source;
      for (const auto& [tensor, pipeline] : divisions) {
        at = converted(at, "mg", [&](ConvertOptions& o) {
          o.tensor = tensor;
          o.pipeline = pipeline;
          o.core = true;
          o.core_layers = tree;
        });
      }
      expect_same_files(source, converted(at, "hf"));
    }
  }

  // Tensors of torch_dist are whole.
  void goes_through_torch_dist(const fs::path& source) {
    SCOPED_TRACE(source.filename().string());
    const fs::path there = converted(source, "mg", [](ConvertOptions& o) {
      o.checkpoint_format = "torch_dist";
      o.tensor = 2;
    });
    expect_same_files(source, converted(there, "hf"));
  }

  std::string refusal(const std::string& family, const std::function<void(Json&)>& edit = {}) {
    const fs::path source = folder_of(family, edit);
    const fs::path parent = dir_ / fmt::format("refused-{}", next_++);
    const std::string line = message_of(Fault::kData, [&] {
      converted(source, "mg", [&](ConvertOptions& o) { o.save = (parent / "mg").string(); });
    });
    EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    EXPECT_FALSE(fs::exists(parent));  // not even made and removed
    return line;
  }

  static Json config_of(const fs::path& folder) {
    return Json::parse(read_text_file(folder / "config.json"));
  }

  // Of enough ids for the corpus that train() reads.
  fs::path trainable(const std::string& family, const std::function<void(Json&)>& edit = {}) {
    return folder_of(family, [&](Json& config) {
      config["vocab_size"] = 300;
      if (edit) edit(config);
    });
  }

  // Trains the weights of `load`, a folder by trainable() or a run.
  void train(const fs::path& load, const fs::path& save, int steps,
             const std::vector<std::string>& more = {}) {
    PretrainOptions options;
    OptionSet set;
    options.add_to(set);
    options.tokenizer.type = "NullTokenizer";
    if (fs::exists(load / "config.toml")) set.read_toml(load / "config.toml");
    const fs::path corpus = dir_ / "corpus";
    if (!fs::exists(dir_ / "corpus.bin")) test::write_small_corpus(corpus);
    std::vector<std::string> words = {"--load",
                                      load.string(),
                                      "--save",
                                      save.string(),
                                      "--data-path",
                                      corpus.string(),
                                      "--split",
                                      "100,0,0",
                                      "--seq-length",
                                      "16",
                                      "--micro-batch-size",
                                      "2",
                                      "--lr",
                                      "1e-3",
                                      "--lr-decay-style",
                                      "constant",
                                      "--train-iters",
                                      std::to_string(steps)};
    words.insert(words.end(), more.begin(), more.end());
    set.parse(words);
    Trainer trainer(own_.machine(), options, {});
    while (!trainer.done()) trainer.step();
    trainer.save();
    trainer.finish();
  }
  fs::path trained(const fs::path& load, int steps, const std::vector<std::string>& more = {}) {
    const fs::path save = dir_ / fmt::format("run-{}", next_++);
    train(load, save, steps, more);
    return save;
  }

  static void expect_same_shapes(const fs::path& a, const fs::path& b) {
    const HfTensorFiles first(a);
    const HfTensorFiles second(b);
    ASSERT_EQ(first.tensors().size(), second.tensors().size());
    for (const auto& [name, tensor] : first.tensors()) {
      ASSERT_TRUE(second.tensors().contains(name)) << name;
      EXPECT_EQ(tensor.shape, second.tensors().at(name).shape) << name;
    }
    ModelConfig wanted = HfSource(a).model();
    wanted.dtype = DType::kF32;
    EXPECT_EQ(wanted, HfSource(b).model());
  }

  test::HostMachine one_;
  test::SmallMachine own_{*one_.world};  // to train
  ConvertReport report_;
  TempFolder dir_;
  int next_ = 0;
  std::size_t rounds_ = 0;
};

TEST_F(RoundTrip, OfEveryFamilyThroughMegatronGivesTheSameBytes) {
  // By day a family goes one way or the other.
  const std::vector<const char*> families = {"gpt2",      "llama",        "llama3",    "bloom",
                                             "baichuan",  "baichuan-13b", "baichuan2", "internlm",
                                             "internlm2", "aquila",       "qwen2",     "qwen3",
                                             "stablelm",  "smollm3",      "arcee",     "nemotron"};
  for (const char* family : test::sampled(families, 4)) goes_round(folder_of(family));
  for (const char* family : test::sampled(families, 4, 1)) {
    if (std::string(family) != "bloom") goes_through_torch_dist(folder_of(family));
  }
}

// In the modules of Megatron-core, which alone have them here.
TEST_F(RoundTrip, OfExpertsThroughMegatronGivesTheSameBytes) {
  const std::vector<const char*> families = {"mixtral", "qwen3-moe", "qwen2-moe"};
  for (const char* family : test::sampled(families, 2, 1)) {
    const fs::path source =
        folder_of(family, [](Json& config) { config["intermediate_size"] = 48; });
    goes_through_core(source, {{2, 2}, {1, 2}, {2, 1}});
  }
  EXPECT_THAT(refusal("mixtral"),
              HasSubstr("is a mixture of experts, which Piton writes in the format mg with "
                        "--use-mcore-models or --ckpt-format torch_dist alone, not with older "
                        "modules; or use --to piton"));
}

TEST_F(RoundTrip, OfLatentAttentionGivesTheSameBytes) {
  for (const char* family : {"deepseek-v2", "deepseek-v2-ranks", "deepseek-v3"}) {
    const fs::path source = folder_of(family);
    expect_same_files(source, converted(converted(source, "piton"), "hf"));
  }
  const auto dense = [](Json& config) { config["first_k_dense_replace"] = 4; };
  EXPECT_THAT(refusal("deepseek-v2-ranks", dense),
              HasSubstr("has latent attention, which Piton writes in the format mg with "
                        "--use-mcore-models or --ckpt-format torch_dist alone"));
  goes_through_core(folder_of("deepseek-v2-ranks", dense), {{2, 2}, {1, 2}, {2, 1}});
}

TEST_F(RoundTrip, OfNewerModelsThroughMegatronGivesTheSameBytes) {
  goes_through_core(folder_of("gpt-oss"), {{2, 1}});
  // Each result is compared with its source; digits of gains are lost.
  converted(folder_of("qwen3-next"), "mg", [](ConvertOptions& o) {
    o.tensor = 2;
    o.core = true;
  });
  goes_through_core(folder_of("mistral"), {{2, 1}});
}

// tests/commands/experts.cmake has formats that get the model without them.
TEST_F(RoundTrip, OfLayersThatPredictLaterTokensIsThroughCheckpoints) {
  const auto later = [](Json& config) { config["num_nextn_predict_layers"] = 1; };
  for (const char* family : {"deepseek-v3", "glm4-moe"}) {
    const fs::path source = folder_of(family, later);
    ASSERT_EQ(HfSource(source).model().mtp_layers, 1);
    const fs::path checkpoint = converted(source, "piton");
    EXPECT_TRUE(report_.notes.empty());
    expect_same_files(source, converted(checkpoint, "hf"));
  }
}

// GLM-4.5's without a sum of two scores for each group, which Megatron's arguments cannot say.
TEST_F(RoundTrip, OfLayersThatPredictLaterTokensIsThroughMegatron) {
  const fs::path source = folder_of("glm4-moe", [](Json& config) {
    config["num_nextn_predict_layers"] = 1;
    config["n_group"] = config["topk_group"] = 1;
  });
  ASSERT_EQ(HfSource(source).model().mtp_layers, 1);
  goes_through_core(source, {{2, 2}, {1, 1}});
  EXPECT_THAT(report_.notes, testing::IsEmpty());
}

// Their published configurations without a window.
TEST_F(RoundTrip, OfFamiliesWhoseWindowIsOffGivesTheSameBytes) {
  for (const char* family : {"mistral", "phi3"})
    goes_round(folder_of(family, [](Json& config) { config["sliding_window"] = nullptr; }));
}

TEST_F(RoundTrip, KeepsTheOtherHead) {
  for (const char* family : {"gpt2", "llama"}) {
    goes_round(folder_of(family, [](Json& config) {
      config["tie_word_embeddings"] = !config["tie_word_embeddings"].get<bool>();
    }));
  }
}

// Published models of InternLM have it.
TEST_F(RoundTrip, KeepsDynamicRotaryScaling) {
  const auto dynamic = [](Json& config) {
    config["rotary"] = {{"base", 20000}, {"type", "dynamic"}};
  };
  goes_round(folder_of("internlm", dynamic));
  goes_round(folder_of("internlm2", [](Json& config) {
    config["rope_scaling"] = {{"type", "dynamic"}, {"factor", 2.0}};
  }));
  converted(folder_of("internlm", dynamic), "mg");
  EXPECT_THAT(report_.notes, testing::Contains(HasSubstr("has dynamic rotary scaling, which "
                                                         "Megatron-LM does not know")));
  converted(folder_of("baichuan2"), "mg");
  EXPECT_THAT(report_.notes, testing::Contains(HasSubstr("has a normalized head, which")));
  converted(folder_of("llama3"), "mg");
  EXPECT_THAT(report_.notes, testing::IsEmpty());
}

// Through checkpoints of Piton: not only the tensors, but the whole config.json.
TEST_F(RoundTrip, OfEveryFamilyThroughPitonGivesTheSameFolder) {
  for (const std::string& family : test::sampled(test::golden_folders(), 6)) {
    SCOPED_TRACE(family);
    const fs::path source = folder_of(family, [](Json& config) {
      config["of_tomorrow"] = {{"a", 1}};
      config["eos_token_id"] = {5, 7};
    });
    const fs::path there = converted(source, "piton");
    const fs::path back = converted(there, "hf");
    EXPECT_THAT(report_.notes, testing::IsEmpty());
    expect_same_files(source, back);
    EXPECT_EQ(config_of(back), config_of(source));
    expect_same_files(source, converted(converted(converted(back, "piton"), "piton"), "hf"));
  }
}

// Megatron's files say the family alone, and so does a checkpoint that is made of them.
TEST_F(RoundTrip, OfEveryFamilyThroughMegatronAndPitonGivesTheSameBytes) {
  const std::vector<const char*> families = {"gpt2",         "llama",     "bloom",    "baichuan",
                                             "baichuan-13b", "baichuan2", "internlm", "internlm2",
                                             "qwen2",        "qwen3",     "stablelm"};
  for (const char* family : test::sampled(families, 3)) {
    SCOPED_TRACE(family);
    const fs::path source = folder_of(family);
    const fs::path megatron = converted(converted(source, "piton"), "mg");
    expect_same_files(source, converted(converted(megatron, "piton"), "hf"));
  }
}

TEST_F(RoundTrip, AfterTrainingHasTheNamesOfTheFamily) {
  std::vector<std::string> families = test::sampled(test::golden_folders(), 6, 2);
  if (std::ranges::find(families, "internlm2") == families.end()) families.push_back("internlm2");
  for (const std::string& family : families) {
    SCOPED_TRACE(family);
    const fs::path source = trainable(family, [](Json& config) {
      config["of_tomorrow"] = 1;
      config["eos_token_id"] = 5;
    });
    const fs::path run = trained(source, 10, {"--hidden-dropout", "0.1"});
    const fs::path back = converted(run, "hf");
    expect_same_shapes(source, back);
    Json wanted = config_of(source);
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (wanted.contains(key)) wanted[key] = "float32";
    }
    EXPECT_EQ(config_of(back), wanted);
    if (family != "internlm2") continue;
    // Another run from these weights, and one more step of the same.
    expect_same_shapes(source, converted(trained(run, 1, {"--finetune"}), "hf"));
    train(run, run, 11);
    expect_same_shapes(source, converted(run, "hf"));
  }
}

TEST_F(RoundTrip, OfAModelThatTrainingChangedSaysSo) {
  const fs::path moved =
      converted(trained(trainable("internlm2"), 1, {"--rotary-base", "50000"}), "hf");
  EXPECT_EQ(config_of(moved)["model_type"], "internlm2");
  EXPECT_EQ(config_of(moved)["rope_theta"], 5e4);
  const fs::path source = trainable("baichuan");
  const fs::path windowed = converted(trained(source, 1, {"--pre-tockens", "7"}), "hf");
  EXPECT_EQ(config_of(windowed)["model_type"], "mistral");
  EXPECT_THAT(report_.notes,
              testing::Contains(HasSubstr("of model_type baichuan, which cannot say its attention "
                                          "window: the folder is of model_type mistral")));
  const fs::path run = trained(trainable("baichuan-13b"), 1, {"--pre-tockens", "7"});
  EXPECT_THAT(
      message_of(Fault::kData, [&] { converted(run, "hf"); }),
      HasSubstr("its attention window cannot be written; keep it as a checkpoint of Piton"));
}

// Ids of special tokens are those of the model that the run started from, unless its tokenizer's
// are asked for.
TEST_F(RoundTrip, WithAnotherTokenizerHasItsIdsIfAsked) {
  const fs::path source = trainable("llama", [](Json& config) { config["eos_token_id"] = 5; });
  EXPECT_EQ(config_of(converted(trained(source, 1), "hf"))["eos_token_id"], 5);
  const fs::path run = trained(source, 1, {"--tokenizer-type", "ByteTokenizer"});
  EXPECT_EQ(config_of(converted(run, "hf"))["eos_token_id"], 5);
  EXPECT_THAT(report_.notes, testing::Contains(HasSubstr(
                                 "config.json keeps eos_token_id 5 of the model that the weights "
                                 "come from, and the tokenizer of the run ends a text by 256")));
  const fs::path asked = converted(run, "hf", [](ConvertOptions& o) { o.tokenizer_ids = true; });
  EXPECT_EQ(config_of(asked)["eos_token_id"], 256);
}

TEST_F(RoundTrip, ThatMegatronHasNoWordsForIsRefusedByName) {
  const std::string end =
      " cannot be expressed in the format mg, as Megatron's arguments have no words for it; ";
  const std::string older =
      ", which Piton writes in the format mg with --use-mcore-models or --ckpt-format torch_dist "
      "alone, not with older modules; or use --to piton or --to gguf";
  EXPECT_THAT(refusal("mistral"), HasSubstr(": has an attention window" + older));
  // llama.cpp takes the scale of Gemma's scores for granted, and it is another.
  EXPECT_THAT(refusal("gemma2"), HasSubstr(": its activation" + end + "use --to piton"));
  EXPECT_THAT(refusal("gemma3"), HasSubstr(": its activation" + end + "use --to piton"));
  EXPECT_THAT(refusal("llama",
                      [](Json& config) {
                        config["rope_parameters"] = {{"rope_type", "yarn"},
                                                     {"rope_theta", 1e4},
                                                     {"factor", 4.0},
                                                     {"original_max_position_embeddings", 32}};
                      }),
              HasSubstr(": has yarn" + older));
  EXPECT_THAT(refusal("qwen2", [](Json& config) { config["hidden_act"] = "relu"; }),
              HasSubstr(": its activation" + end + "it can be used as it is"));
}

}  // namespace
}  // namespace piton
