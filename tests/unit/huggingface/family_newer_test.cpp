// Facts of families by their config.json, what they have where keys are absent, and what is refused
// by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/files/files.h"
#include "huggingface/family.h"
#include "support/errors.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

Json file_of(const std::string& name) {
  return Json::parse(read_text_file(test::golden_folder(name) / "config.json"));
}

ModelConfig read(const Json& config) { return hf_model(HfConfig(config.dump(), "config.json")); }

ModelConfig without(const std::string& name, std::initializer_list<const char*> keys) {
  Json config = file_of(name);
  for (const char* key : keys) EXPECT_EQ(config.erase(key), 1U) << key;
  return read(config);
}

ModelConfig with(const std::string& name, const char* key, const Json& value) {
  Json config = file_of(name);
  config[key] = value;
  return read(config);
}

std::string refused(const std::string& name, const char* key, const Json& value) {
  return message_of(Fault::kData, [&] { with(name, key, value); });
}

std::string refused_angles(const std::string& name, const char* key, const Json& value) {
  Json config = file_of(name);
  config["rope_parameters"][key] = value;
  return message_of(Fault::kData, [&] { read(config); });
}

// Pretraining of a model of a folder needs it.
TEST(NewerFamilies, AreSaidByFlags) {
  for (const char* name : {"ministral3",
                           "ministral",
                           "dots1",
                           "glm4-moe-lite",
                           "youtu",
                           "minicpm3",
                           "exaone-moe",
                           "exaone",
                           "hunyuan-moe",
                           "minimax-m2",
                           "solar-open",
                           "cwm",
                           "iquestcoder",
                           "jais2",
                           "mellum",
                           "bamba",
                           "granite-moe-shared",
                           "olmo",
                           "nanochat",
                           "helium",
                           "gpt-bigcode",
                           "gpt-neo",
                           "mpt"}) {
    const ModelConfig model = read(file_of(name));
    EXPECT_EQ(ModelOptions::of(model).resolve({}), model) << name;
  }
}

TEST(NewerFamilies, OfMistralHaveWindowsOrQueriesThatGrow) {
  const ModelConfig ministral3 = read(file_of("ministral3"));
  EXPECT_EQ(ministral3.rotary_scaling.query_growth, 0.3);
  EXPECT_EQ(ministral3.rotary_scaling.original_positions, 8);
  // As the class of Transformers has it.
  const RotaryScaling usual = without("ministral3", {"rope_parameters"}).rotary_scaling;
  EXPECT_EQ(usual, (RotaryScaling{.kind = RotaryScaling::Kind::kYarn,
                                  .factor = 16,
                                  .original_positions = 16384,
                                  .numerator = 1,
                                  .denominator = 1,
                                  .query_growth = 0.1}));
  EXPECT_THAT(refused_angles("ministral3", "llama_4_scaling_beta", nullptr),
              HasSubstr("rope_parameters.llama_4_scaling_beta: got nothing, wanted a number"));
  EXPECT_THAT(refused_angles("ministral3", "rope_type", "llama3"), HasSubstr("wanted 0, but of"));
  EXPECT_EQ(with("ministral3", "sliding_window", 5).window_before, 4);
  const ModelConfig ministral = read(file_of("ministral"));
  EXPECT_TRUE(ministral.window_of(0) && !ministral.window_of(1) && ministral.window_of(2));
  EXPECT_FALSE(without("ministral", {"layer_types"}).full_attention_every);
  EXPECT_THAT(refused("ministral", "layer_types", Json::array({"sliding_attention"})),
              HasSubstr("wanted types of 3 layers (num_hidden_layers)"));
  const ModelConfig minimax = read(file_of("minimax-m2"));
  EXPECT_TRUE(minimax.joint_head_norms && minimax.experts->choice_bias);
  Json older = file_of("minimax-m2");
  older.erase("rope_parameters");
  older["rotary_dim"] = minimax.head_size / 2;
  EXPECT_EQ(read(older).rotary_share, 0.5);
  EXPECT_EQ(read(older).rotary_base, 5e6);
  EXPECT_THAT(refused("minimax-m2", "scoring_func", "softmax"), HasSubstr("wanted sigmoid"));
  EXPECT_THAT(refused("minimax-m2", "use_qk_norm", false), HasSubstr("use_qk_norm: got false"));
}

// A folder of Mistral Small 3.1, or of Ministral 3, has the text part under a key.
TEST(NewerFamilies, OfMistralMayHaveAVisionPart) {
  for (const char* name : {"ministral3", "mistral"}) {
    Json whole = {{"model_type", "mistral3"},
                  {"architectures", Json::array({"Mistral3ForConditionalGeneration"})},
                  {"vision_config", Json::object()}};
    whole["text_config"] = file_of(name);
    whole["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", nullptr}};
    const test::HfFolder folder(name);
    write_text_file(folder.path() / "config.json", whole.dump());
    const HfConfig config = HfConfig::read(folder.path());
    EXPECT_TRUE(config.is_language_part());
    EXPECT_EQ(config.object("quantization_config").word("quant_method"), "fp8");
    EXPECT_EQ(hf_model(config), read(file_of(name)));
  }
}

TEST(NewerFamilies, WithRoutedExpertsHaveThoseOfTheirFiles) {
  const ModelConfig dots = read(file_of("dots1"));
  EXPECT_EQ(dots.experts, (ExpertFacts{.experts = 8,
                                       .choices = 3,
                                       .score = ScoreKind::kSigmoid,
                                       .weight_factor = 1.5,
                                       .choice_bias = true,
                                       .groups = {.count = 4, .chosen = 2, .largest = 2},
                                       .ffn_hidden = 14,
                                       .shared_ffn_hidden = 28,
                                       .dense_layers = {0}}));
  EXPECT_FALSE(without("dots1", {"norm_topk_prob"}).experts->normalized);
  EXPECT_FALSE(without("dots1", {"layer_types"}).window_before);
  Json windows = file_of("dots1");
  windows.erase("layer_types");
  windows["max_window_layers"] = 0;
  EXPECT_EQ(read(windows).window_before, 8);
  windows["max_window_layers"] = 1;
  EXPECT_THAT(message_of(Fault::kData, [&] { read(windows); }), HasSubstr("max_window_layers"));
  EXPECT_THAT(refused("dots1", "n_routed_experts", nullptr), HasSubstr("n_routed_experts: got"));
  const ModelConfig lite = read(file_of("glm4-moe-lite"));
  EXPECT_THAT(lite.experts->dense_layers, ElementsAre(0, 2));
  EXPECT_EQ(lite.latent->norm_eps, 1e-6);
  EXPECT_EQ(lite.norm_eps, 1e-5);
  Json plain = file_of("glm4-moe-lite");
  plain.erase("mlp_layer_types");
  EXPECT_THAT(read(plain).experts->dense_layers, ElementsAre(0));
  plain["first_k_dense_replace"] = 2;
  EXPECT_THAT(message_of(Fault::kData, [&] { read(plain); }),
              HasSubstr("first_k_dense_replace: got 2, wanted 1, where mlp_layer_types is absent"));
  EXPECT_THAT(refused("glm4-moe-lite", "mlp_layer_types", {"dense", "wide", "sparse"}),
              HasSubstr("wanted dense or sparse in each layer"));
  EXPECT_THAT(refused("glm4-moe-lite", "mlp_layer_types", {"dense", "sparse"}),
              HasSubstr("wanted 3 layers"));
  EXPECT_THAT(refused("solar-open", "first_k_dense_replace", 1), HasSubstr("wanted 0"));
  const ModelConfig exaone = read(file_of("exaone-moe"));
  EXPECT_EQ(exaone.no_rotary_every, 2);
  EXPECT_EQ(exaone.experts->shared_ffn_hidden, 36);
  EXPECT_EQ(without("exaone-moe", {"routed_scaling_factor"}).experts->weight_factor, 2.5);
  EXPECT_THAT(
      refused("exaone-moe", "layer_types",
              {"full_attention", "sliding_attention", "full_attention", "sliding_attention"}),
      HasSubstr("full_attention in every N-th layer for some N"));
  const ModelConfig hunyuan = read(file_of("hunyuan-moe"));
  EXPECT_EQ(hunyuan.experts,
            (ExpertFacts{.experts = 5, .choices = 2, .shared_ffn_hidden = hunyuan.ffn_hidden}));
  EXPECT_EQ(with("hunyuan-moe", "moe_topk", 3).experts->choices, 3);
  EXPECT_THAT(refused("hunyuan-moe", "moe_topk", {2, 3}), HasSubstr("the same size in every"));
  EXPECT_THAT(refused("hunyuan-moe", "num_shared_expert", {2, 2}), HasSubstr("wanted 1 in every"));
}

TEST(NewerFamilies, WithLatentAttentionHaveTheirOwnDefaults) {
  const ModelConfig minicpm3 = read(file_of("minicpm3"));
  EXPECT_FALSE(minicpm3.rotary_pairs);
  EXPECT_EQ(minicpm3.embedding_factor, 3);
  EXPECT_EQ(minicpm3.logit_divisor, 32.0 / 12);
  const ModelConfig usual =
      without("minicpm3", {"scale_emb", "scale_depth", "dim_model_base", "v_head_dim"});
  EXPECT_EQ(usual.embedding_factor, 12);
  EXPECT_EQ(usual.branch_factor, 1.4 / std::sqrt(2.0));
  EXPECT_EQ(usual.logit_divisor, 32.0 / 256);
  EXPECT_EQ(usual.latent->value, 8);
  EXPECT_EQ(with("minicpm3", "scale_depth", nullptr).branch_factor, 1);
  EXPECT_EQ(with("minicpm3", "dim_model_base", nullptr).logit_divisor, 1);
  EXPECT_THAT(refused("minicpm3", "attention_bias", true), HasSubstr("wanted false"));
  const ModelConfig youtu = without("youtu", {"initializer_range", "embedding_initializer_range"});
  EXPECT_DOUBLE_EQ(youtu.init_deviation, 2 / std::sqrt(160.0));
  EXPECT_DOUBLE_EQ(*youtu.embedding_deviation, 4 / std::sqrt(160.0));
  EXPECT_FALSE(youtu.experts);
}

TEST(NewerFamilies, LikeLlamaHaveTheirOwnDefaults) {
  const ModelConfig cwm = read(file_of("cwm"));
  EXPECT_TRUE(!cwm.window_of(0) && cwm.window_of(1) && !cwm.window_of(2));
  Json older = file_of("cwm");
  older.erase("layer_types");
  older.erase("rope_parameters");
  older["num_hidden_layers"] = 6;
  const ModelConfig usual = read(older);
  EXPECT_TRUE(!usual.window_of(0) && usual.window_of(3) && !usual.window_of(4));
  EXPECT_EQ(usual.rotary_scaling.kind, RotaryScaling::Kind::kLlama3);
  EXPECT_EQ(usual.rotary_scaling.factor, 16);
  const ModelConfig mellum = read(file_of("mellum"));
  EXPECT_EQ(mellum.local_rotary_base, 500);
  EXPECT_THAT(mellum.experts->dense_layers, ElementsAre(1));
  const ModelConfig angles = without("mellum", {"rope_parameters"});
  EXPECT_EQ(angles.rotary_base, 500000);
  EXPECT_EQ(angles.local_rotary_base, 10000);
  EXPECT_FALSE(without("mellum", {"layer_types"}).window_before);
  EXPECT_THAT(refused("helium", "head_dim", 12), HasSubstr("hidden_size / num_attention_heads"));
  EXPECT_THAT(refused("iquestcoder", "clip_qkv", 8.0), HasSubstr("clip_qkv: got 8.0"));
  EXPECT_FALSE(with("jais2", "attention_bias", false).output_bias);
  EXPECT_TRUE(without("jais2", {"mlp_bias"}).biases);
  EXPECT_EQ(without("exaone", {"rope_parameters"}).rotary_base, 500000);
  // LG's words.
  Json words = file_of("exaone");
  for (const auto& [newer, word] : {std::pair{"num_hidden_layers", "num_layers"},
                                    {"rms_norm_eps", "layer_norm_epsilon"},
                                    {"hidden_act", "activation_function"}}) {
    if (!words.contains(newer)) continue;
    words[word] = words[newer];
    words.erase(newer);
  }
  EXPECT_EQ(read(words), read(file_of("exaone")));
}

TEST(NewerFamilies, HaveLayersOfMambaWhereTheirFileSaysSo) {
  const ModelConfig bamba = read(file_of("bamba"));
  EXPECT_THAT(bamba.state_space->attention_layers, ElementsAre(1));
  EXPECT_EQ(bamba.rotary_share, 0.5);
  EXPECT_TRUE(without("bamba", {"attn_layer_indices"}).state_space->attention_layers.empty());
  EXPECT_THAT(refused("bamba", "attn_layer_indices", Json::array({4})),
              HasSubstr("wanted layers of the model"));
  EXPECT_THAT(refused("bamba", "attn_layer_indices", {0, 1, 2, 3}), HasSubstr("not all layers"));
  EXPECT_THAT(refused("bamba", "attn_rotary_emb", 3), HasSubstr("attn_rotary_emb: got 3"));
  EXPECT_THAT(refused("bamba", "mamba_conv_bias", false), HasSubstr("wanted true"));
  EXPECT_EQ(read(file_of("granite-moe-shared")).experts->shared_ffn_hidden, 26);
  EXPECT_EQ(without("granite-moe-shared", {"shared_intermediate_size"}).experts->shared_ffn_hidden,
            0);
}

TEST(NewerFamilies, WithoutGainsHaveNormsOfTheirKind) {
  const ModelConfig olmo = read(file_of("olmo"));
  EXPECT_TRUE(olmo.norm == NormKind::kLayer && !olmo.norm_gains && !olmo.norm_biases);
  EXPECT_THAT(refused("olmo", "clip_qkv", 8.0), HasSubstr("clip_qkv: got 8.0, wanted null"));
  const ModelConfig nanochat = read(file_of("nanochat"));
  EXPECT_TRUE(nanochat.norm == NormKind::kRms && !nanochat.norm_gains && nanochat.head_norms);
  EXPECT_TRUE(nanochat.rotary_reversed && nanochat.norms_after_rotary && nanochat.embedding_norm);
  EXPECT_EQ(nanochat.logit_soft_cap, 5);
  EXPECT_EQ(without("nanochat", {"final_logit_softcapping"}).logit_soft_cap, 15);
  EXPECT_EQ(with("nanochat", "final_logit_softcapping", nullptr).logit_soft_cap, 0);
}

TEST(NewerFamilies, OfGptHaveTheirOwnAttention) {
  EXPECT_EQ(read(file_of("gpt-bigcode")).groups, 1);
  EXPECT_EQ(with("gpt-bigcode", "multi_query", false).groups, 6);
  const ModelConfig neo = read(file_of("gpt-neo"));
  EXPECT_EQ(neo.score_factor, 1);
  EXPECT_TRUE(!neo.window_of(0) && neo.window_of(1) && !neo.window_of(2));
  EXPECT_EQ(neo.window_before, 8);
  const auto types = [](const char* text) {
    Json config = file_of("gpt-neo");
    config["attention_types"] = Json::parse(text);
    return config;
  };
  EXPECT_FALSE(read(types(R"([[["global"], 3]])")).window_before);
  const std::pair<const char*, const char*> bad[] = {
      {R"([[["global", "local"], 1]])", "wanted types of 3 layers"},
      {R"([[["global"], 2], [["near"], 1]])", "wanted local, and global"},
      {"3", "attention_types: got 3, wanted lists of types"},
      {"[1]", "wanted lists of types"},
      {R"([["global", 3]])", "wanted lists of types"},
      {R"([[["global"], "3"]])", "wanted lists of types"},
      {R"([[["global"], -1]])", "wanted lists of types"},
      {"[[[2], 3]]", "wanted lists of types"},
      {R"([[["global"], 1000000000]])", "wanted lists of types"}};
  for (const auto& [text, message] : bad) {
    EXPECT_THAT(message_of(Fault::kData, [&] { read(types(text)); }), HasSubstr(message)) << text;
  }
  EXPECT_THAT(refused("mpt", "n_heads", 1 + 2), HasSubstr("n_heads: got 3"));
  EXPECT_THAT(refused("mpt", "no_bias", false), HasSubstr("no_bias: got false"));
  Json clipped = file_of("mpt");
  clipped["attn_config"]["clip_qkv"] = 6;
  EXPECT_THAT(message_of(Fault::kData, [&] { read(clipped); }),
              HasSubstr("attn_config.clip_qkv: got 6, wanted 0"));
}

}  // namespace
}  // namespace piton
