#include "model/families.h"

#include <gtest/gtest.h>

#include <sstream>

#include "support/errors.h"
#include "unit/model/made_model.h"

namespace piton {
namespace {

// As their publishers count them.
TEST(Families, HaveTheParametersThatArePublished) {
  EXPECT_EQ(preset("gpt2-124m").parameters(), 124'439'808);
  EXPECT_EQ(preset("gpt2-355m").parameters(), 354'823'168);
  EXPECT_EQ(preset("llama2-7b").parameters(), 6'738'415'616);
  EXPECT_EQ(preset("qwen1.5-0.5b").parameters(), 463'987'712);
  EXPECT_EQ(preset("qwen2.5-0.5b").parameters(), 494'032'768);
  EXPECT_EQ(preset("qwen3-0.6b").parameters(), 596'049'920);
  EXPECT_EQ(preset("mixtral-8x7b").parameters(), 46'702'792'704);
  EXPECT_EQ(preset("qwen3-30b-a3b").parameters(), 30'532'122'624);
  EXPECT_EQ(preset("qwen1.5-moe-a2.7b").parameters(), 14'315'784'192);
  EXPECT_EQ(preset("glm-4.5-air").parameters(), 106'852'251'264);
  // By Transformers' configurations of these sizes, without layers that predict later tokens.
  EXPECT_EQ(preset("qwen3.5-0.8b").parameters(), 752'393'024);
  EXPECT_EQ(preset("qwen3.5-9b").parameters(), 8'953'803'264);
  EXPECT_EQ(preset("qwen3-next-80b-a3b").parameters(), 79'674'391'296);
  // 14848 of them are biases of choices, which Transformers counts as buffers.
  EXPECT_EQ(preset("deepseek-v3").parameters(), 671'026'404'352 + 14'848);
}

// The architectures of the documents that Piton replaces, by their sizes.
TEST(Families, HaveTheParametersOfTheDocuments) {
  struct Architecture {
    const char* name;
    const char* family;
    std::int64_t layers, hidden, ffn, heads, groups, vocabulary, positions, parameters;
    PositionKind kind = PositionKind::kRotary;
    bool qkv_biases = false, output_bias = false, tied = false;
  };
  const auto alibi = PositionKind::kAlibi;
  const auto learned = PositionKind::kLearned;
  for (const Architecture& one : std::vector<Architecture>{
           {"LLaMA-7B", "llama", 32, 4096, 11008, 32, 32, 32000, 2048, 6'738'415'616},
           {"LLaMA-13B", "llama", 40, 5120, 13824, 40, 40, 32000, 2048, 13'015'864'320},
           {"LLaMA-33B", "llama", 60, 6656, 17920, 52, 52, 32000, 2048, 32'528'943'616},
           {"LLaMA-65B", "llama", 80, 8192, 22016, 64, 64, 32000, 2048, 65'285'660'672},
           {"LLaMA2-70B", "llama", 80, 8192, 28672, 64, 8, 32000, 4096, 68'976'648'192},
           {"Baichuan-7B", "llama", 32, 4096, 11008, 32, 32, 64000, 4096, 7'000'559'616},
           {"Baichuan-13B", "llama", 40, 5120, 13696, 40, 40, 64000, 4096, 13'264'901'120, alibi},
           {"InternLM-7B", "llama", 32, 4096, 11008, 32, 32, 103168, 2048, 7'321'948'160,
            PositionKind::kRotary, true, true},
           {"Aquila-7B", "llama", 32, 4096, 11008, 32, 32, 100008, 2048, 7'295'537'152},
           {"Qwen1.5-0.5B", "qwen2", 24, 1024, 2816, 16, 16, 151936, 32768, 463'987'712,
            PositionKind::kRotary, true, false, true},
           {"Bloom-560m", "bloom", 24, 1024, 4096, 16, 16, 250880, 2048, 559'214'592, alibi, true,
            true, true},
           {"Bloom-7b1", "bloom", 30, 4096, 16384, 32, 32, 250880, 2048, 7'069'016'064, alibi, true,
            true, true},
           {"Bloom-176b", "bloom", 70, 14336, 57344, 112, 112, 250880, 2048, 176'247'271'424, alibi,
            true, true, true},
           {"GPT-345M", "gpt2", 24, 1024, 4096, 16, 16, 50257, 1024, 354'823'168, learned, true,
            true, true}}) {
    ModelConfig model = family_facts(one.family);
    model.layers = one.layers;
    model.hidden = one.hidden;
    model.ffn_hidden = one.ffn;
    model.heads = one.heads;
    model.groups = one.groups;
    model.head_size = one.hidden / one.heads;
    model.vocabulary = one.vocabulary;
    model.max_positions = one.positions;
    model.positions = one.kind;
    model.qkv_biases = one.qkv_biases;
    model.output_bias = one.output_bias;
    model.tied = one.tied;
    EXPECT_NO_THROW(model.check()) << one.name;
    EXPECT_EQ(model.parameters(), one.parameters) << one.name;
  }
}

ModelConfig with_flags(const std::vector<std::string>& words, std::string* changes = nullptr) {
  ModelOptions options;
  OptionSet set;
  set.add("Model", options);
  EXPECT_TRUE(set.parse(words).empty());
  const ModelConfig config = options.resolve(std::nullopt);
  if (changes != nullptr) *changes = options.changes_of_preset(config);
  return config;
}

TEST(Presets, ChangeNothingIfTheirOwnValuesAreGivenAgain) {
  for (const std::string& name : preset_names()) {
    const ModelConfig config = preset(name);
    for (const auto& [flag, value] : std::vector<std::pair<std::string, std::int64_t>>{
             {"--num-layers", config.layers},
             {"--hidden-size", config.hidden},
             {"--ffn-hidden-size", config.ffn_hidden},
             {"--num-attention-heads", config.heads},
             {"--num-query-groups", config.groups},
             {"--kv-channels", config.head_size},
             {"--vocab-size", config.vocabulary},
             {"--max-position-embeddings", config.max_positions}}) {
      std::string changes;
      EXPECT_EQ(with_flags({"--model", name, flag, std::to_string(value)}, &changes), config)
          << name << " " << flag;
      EXPECT_EQ(changes, "");
    }
    EXPECT_EQ(with_flags({"--model", name, "--hidden-size", std::to_string(config.hidden),
                          "--num-attention-heads", std::to_string(config.heads)}),
              config)
        << name;
  }
}

TEST(Presets, SayWhatOtherValuesChange) {
  std::string changes;
  const ModelConfig config =
      with_flags({"--model", "llama2-7b", "--hidden-size", "2048"}, &changes);
  EXPECT_EQ(config.ffn_hidden, 5440);
  EXPECT_EQ(changes,
            "--model llama2-7b with --hidden-size 2048 (was 4096); so --ffn-hidden-size 5440 (was "
            "11008), --kv-channels 64 (was 128) too, unless given");
  with_flags({"--model", "llama-tiny", "--num-layers", "2"}, &changes);
  EXPECT_EQ(changes, "--model llama-tiny with --num-layers 2 (was 4)");
}

ModelConfig made_of(const std::vector<std::string>& flags) {
  ModelOptions options;
  OptionSet set;
  set.add("Model", options);
  std::vector<std::string> words{"--num-layers",
                                 "4",
                                 "--hidden-size",
                                 "48",
                                 "--vocab-size",
                                 "100",
                                 "--max-position-embeddings",
                                 "32",
                                 "--num-attention-heads",
                                 "6",
                                 "--ffn-hidden-size",
                                 "80"};
  words.insert(words.end(), flags.begin(), flags.end());
  EXPECT_TRUE(set.parse(words).empty());
  return options.resolve(std::nullopt);
}

// A script of Megatron-LM or MindSpeed-LLM names no family.
TEST(Families, AreWhatFlagsMakeOfMegatronsDecoder) {
  const auto same = [](const std::string& family, const std::vector<std::string>& more,
                       const std::vector<std::string>& flags) {
    std::vector<std::string> words{"--model-family", family};
    words.insert(words.end(), more.begin(), more.end());
    ModelConfig named = made_of(words);
    named.family = "gpt2";
    EXPECT_EQ(made_of(flags), named) << family;
  };
  const std::vector<std::string> llama{"--swiglu",
                                       "--normalization",
                                       "RMSNorm",
                                       "--disable-bias-linear",
                                       "--untie-embeddings-and-output-weights",
                                       "--position-embedding-type",
                                       "rotary",
                                       "--attention-dropout",
                                       "0",
                                       "--hidden-dropout",
                                       "0"};
  const auto with = [](std::vector<std::string> words, const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  same("llama", {}, llama);
  same("llama", {"--add-qkv-bias", "--add-dense-bias"},
       with(llama, {"--add-qkv-bias", "--add-dense-bias"}));
  same("llama", {"--add-mlp-bias"}, with(llama, {"--add-mlp-bias"}));
  same("bloom", {},
       {"--position-embedding-type", "alibi", "--embed-layernorm", "--attention-dropout", "0",
        "--hidden-dropout", "0"});
  const std::vector<std::string> neox{"--position-embedding-type",
                                      "rope",
                                      "--rotary-percent",
                                      "0.25",
                                      "--activation",
                                      "gelu-erf",
                                      "--parallel-residual",
                                      "--untie-embeddings-and-output-weights",
                                      "--attention-dropout",
                                      "0",
                                      "--hidden-dropout",
                                      "0"};
  same("gpt_neox", {}, neox);
  same("gpt_neox", {"--single-norm"}, with(neox, {"--single-norm"}));
  same("gemma",
       {"--post-norm", "--pre-tockens", "9", "--window-attn-skip-freq", "2",
        "--attn-logit-softcapping", "50", "--output-logit-softcapping", "30",
        "--query-pre-attn-scalar", "24", "--rotary-base-local", "500"},
       {"--activation",
        "geglu",
        "--normalization",
        "RMSNorm",
        "--disable-bias-linear",
        "--position-embedding-type",
        "rope",
        "--attention-dropout",
        "0",
        "--hidden-dropout",
        "0",
        "--norm-epsilon",
        "1e-6",
        "--add-rmsnorm-offset",
        "--input-embeds-norm",
        "--post-norm",
        "--pre-tockens",
        "9",
        "--window-attn-skip-freq",
        "2",
        "--attn-logit-softcapping",
        "50",
        "--output-logit-softcapping",
        "30",
        "--query-pre-attn-scalar",
        "24",
        "--rotary-base-local",
        "500"});
}

TEST(Families, HaveWindowsInTheLayersThatFlagsName) {
  const ModelConfig model =
      made_of({"--model-family", "gemma", "--pre-tockens", "9", "--window-attn-skip-freq", "3"});
  EXPECT_EQ(model.window_of(0), 9);
  EXPECT_EQ(model.window_of(1), 9);
  EXPECT_FALSE(model.window_of(2));
  EXPECT_EQ(model.window_of(3), 9);
  const ModelConfig first =
      made_of({"--model-family", "gemma", "--pre-tockens", "9", "--window-attn-skip-freq", "3",
               "--window-attn-skip-first", "1"});
  EXPECT_FALSE(first.window_of(0));
  EXPECT_EQ(first.window_of(1), 9);
  EXPECT_EQ(first.window_of(2), 9);
  EXPECT_FALSE(first.window_of(3));
  // The N-th layer is the first one anyway.
  EXPECT_EQ(made_of({"--model-family", "gemma", "--pre-tockens", "9", "--window-attn-skip-freq",
                     "3", "--window-attn-skip-first", "3"}),
            model);
  // 3 of 4 layers see 10 keys at most.
  const ModelConfig whole = made_of({"--model-family", "gemma"});
  EXPECT_LT(model.forward_flops_per_token(32), whole.forward_flops_per_token(32));
}

// The head for words computes rows with a label alone: a seventh of BERT's vocabulary and the
// linear before it.
TEST(Families, CountTheHeadOfAnEncoderByItsLabels) {
  const ModelConfig bert = preset("bert-110m");
  const auto head = static_cast<double>(2 * bert.hidden * (bert.vocabulary + bert.hidden));
  EXPECT_NEAR(bert.forward_flops_per_token(512) - bert.forward_flops_per_token(512, 0, 1.0 / 7),
              head * 6 / 7, 1e-6 * head);
  const ModelConfig llama = preset("llama-tiny");
  EXPECT_EQ(llama.forward_flops_per_token(32, 0, 0.1), llama.forward_flops_per_token(32));
}

// OLMo 2 1B, Phi-2, GPT-J 6B and Granite 3.0 2B, as Transformers counts them.
TEST(Families, WithOtherNormsAndHeadsHaveTheParametersOfPublishedModels) {
  const auto parameters = [](const std::string& family, const std::string& sizes) {
    std::vector<std::string> flags{"--model-family", family, "--max-position-embeddings", "2048"};
    std::istringstream words(sizes);
    for (const char* flag : {"--num-layers", "--hidden-size", "--ffn-hidden-size",
                             "--num-attention-heads", "--num-query-groups", "--vocab-size"}) {
      flags.emplace_back(flag);
      words >> flags.emplace_back();
    }
    return made_of(flags).parameters();
  };
  EXPECT_EQ(parameters("olmo2", "16 2048 8192 16 16 100352"), 1'484'916'736);
  EXPECT_EQ(parameters("phi", "32 2560 10240 32 32 51200"), 2'779'683'840);
  EXPECT_EQ(parameters("gptj", "28 4096 16384 16 16 50400"), 6'050'882'784);
  EXPECT_EQ(parameters("granite", "40 2048 8192 32 8 49155"), 2'533'531'648);
}

// Norms of heads, of both branches, after the embedding and at the end.
TEST(Families, WithoutGainsHaveNoParametersOfNorms) {
  const std::vector<std::string> flags{"--model-family", "llama", "--qk-layernorm",
                                       "--embed-layernorm"};
  const ModelConfig with = made_of(flags);
  std::vector<std::string> more = flags;
  more.emplace_back("--no-norm-gain");
  const ModelConfig without = made_of(more);
  const std::int64_t norms = with.layers * (2 * with.hidden + 2 * with.head_size) + 2 * with.hidden;
  EXPECT_EQ(with.parameters() - without.parameters(), norms);
  EXPECT_EQ(without.parameters(), test::elements_of(without));
}

TEST(Families, RefuseFlagsThatSayNothing) {
  const auto refused = [](const std::vector<std::string>& flags, const std::string& with) {
    EXPECT_NE(message_of(Fault::kUsage, [&] { made_of(flags); }).find(with), std::string::npos)
        << with;
  };
  refused(
      {"--model-family", "mamba"},
      "wanted gpt2, gpt_neox, bloom, llama, mixtral, qwen2, qwen3, qwen2_moe, qwen3_moe, qwen3_5, "
      "qwen3_next, glm4_moe, deepseek_v2, deepseek_v3, gemma");
  refused({"--window-attn-skip-freq", "2"}, "--window-attn-skip-freq: needs layers with a window");
  refused({"--pre-tockens", "4", "--window-attn-skip-freq", "0"}, "--window-attn-skip-freq: got 0");
  refused({"--model-family", "llama", "--rotary-base-local", "500"},
          "--rotary-base-local: needs layers with a window");
  refused({"--rotary-base-local", "500"}, "this model has no rotary positions");
  refused({"--attn-logit-softcapping", "-1"},
          "--attn-logit-softcapping: got -1, wanted a number above 0");
  refused({"--output-logit-softcapping", "-3"}, "--output-logit-softcapping: got -3");
  refused({"--query-pre-attn-scalar", "0"}, "--query-pre-attn-scalar: got 0");
  refused({"--single-norm"}, "--single-norm: is for blocks with --parallel-residual");
  refused({"--model-family", "bert", "--parallel-residual"},
          "--parallel-residual: is for decoders, and the model is an encoder");
  refused({"--embedding-multiplier", "0"}, "--embedding-multiplier: got 0");
  refused({"--residual-multiplier", "-1"}, "--residual-multiplier: got -1");
  refused({"--model-family", "gemma", "--embedding-multiplier", "2"},
          "--embedding-multiplier: the embedding is multiplied by the root of its width");
  refused({"--query-pre-attn-scalar", "4", "--attention-multiplier", "2"},
          "--attention-multiplier: --query-pre-attn-scalar scales the scores too");
  refused({"--qk-layernorm-joint"}, "--qk-layernorm-joint: is of norms of heads");
  refused({"--qk-layernorm-after-rope"}, "--qk-layernorm-after-rope: is of norms of each head");
  refused({"--no-norm-bias", "--normalization", "RMSNorm"}, "--no-norm-bias: is for layer norms");
  refused({"--no-norm-gain"}, "--no-norm-gain: norms with a bias have a gain");
  refused({"--model-family", "gemma", "--no-norm-gain"}, "--no-norm-gain: norms have gains, whose");
  refused({"--model-family", "bert", "--no-norm-bias", "--no-norm-gain"},
          "--no-norm-bias: is for decoders");
  refused({"--model-family", "gemma", "--window-attn-skip-first", "1"},
          "--window-attn-skip-first: needs --window-attn-skip-freq");
  refused({"--model-family", "gemma", "--pre-tockens", "9", "--window-attn-skip-freq", "2",
           "--window-attn-skip-first", "3"},
          "--window-attn-skip-first: got 3");
  refused({"--latent-rotary-halves"}, "--latent-rotary-halves: is for --multi-latent-attention");
  refused({"--latent-norm-epsilon", "1e-6"},
          "--latent-norm-epsilon: is for --multi-latent-attention");
  refused({"--model-family", "deepseek_v2", "--latent-norm-epsilon", "0"},
          "--latent-norm-epsilon: got 0");
  refused({"--no-pre-norm"}, "--no-pre-norm: branches would have no norm");
  refused({"--add-head-bias", "--logits-scaling", "2"},
          "--add-head-bias: is not for logits that are divided");
  refused({"--model-family", "bert", "--logits-scaling", "2"},
          "--logits-scaling: is for decoders, and the model is an encoder");
  refused({"--normalized-head"}, "--normalized-head: needs a head with its own table");
}

}  // namespace
}  // namespace piton
