// config.json as written by Transformers 4 and 5. Properties that Piton does not support are
// refused by name.
#include "huggingface/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/files/files.h"
#include "model/families.h"
#include "support/errors.h"
#include "unit/huggingface/hf_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

Json golden(const std::string& name) {
  return Json::parse(read_text_file(test::golden_folder(name) / "config.json"));
}

ModelConfig model_of(const Json& config) {
  return hf_model(HfConfig(config.dump(), "config.json"));
}

std::string refusal(const std::string& name, const std::function<void(Json&)>& edit) {
  Json config = golden(name);
  edit(config);
  return message_of(Fault::kData, [&] { model_of(config); });
}

TEST(HfModel, OfAClassifierHasTheLabelsOfItsFile) {
  Json config = golden("llama");
  config["architectures"] = {"LlamaForSequenceClassification"};
  EXPECT_EQ(model_of(config).labels, 2);  // as Transformers has it
  EXPECT_TRUE(model_of(config).label_names.empty());
  config["id2label"] = {{"0", "sad"}, {"1", "so so"}, {"2", "glad"}};
  const ModelConfig named = model_of(config);
  EXPECT_THAT(named.label_names, testing::ElementsAre("sad", "so so", "glad"));
  EXPECT_TRUE(named.labels == 3 && !named.tied && !named.gives_rewards());
  config["id2label"] = {{"0", "LABEL_0"}, {"1", "LABEL_1"}};
  EXPECT_TRUE(model_of(config).label_names.empty());
  config["id2label"] = {{"0", "LABEL_0"}};
  EXPECT_TRUE(model_of(config).gives_rewards());
  const auto refused = [&](const char* key, const Json& value) {
    config[key] = value;
    return message_of(Fault::kData, [&] { model_of(config); });
  };
  EXPECT_THAT(refused("num_labels", 3), HasSubstr("num_labels: got 3, wanted the 1 of id2label"));
  config.erase("num_labels");
  EXPECT_THAT(refused("id2label", {{"0", "sad"}, {"2", "glad"}}),
              HasSubstr("wanted names of 0, 1, 2, ..."));
  config["id2label"] = {{"0", "sad"}, {"1", "glad"}};
  EXPECT_FALSE(model_of(config).several_labels);
  EXPECT_THAT(refused("problem_type", "regression"),
              HasSubstr("wanted single_label_classification or multi_label_classification of 2"));
  config["problem_type"] = "multi_label_classification";
  EXPECT_TRUE(model_of(config).several_labels && model_of(config).label_names.size() == 2);
  config["id2label"] = {{"0", "toxic"}};
  const ModelConfig one = model_of(config);
  EXPECT_TRUE(one.gives_labels() && !one.gives_rewards() && !one.regression);
  EXPECT_THAT(one.label_names, testing::ElementsAre("toxic"));
}

TEST(HfModel, HasTheFactsOfItsFile) {
  const ModelConfig gpt2 = model_of(golden("gpt2"));
  EXPECT_EQ(gpt2.family, "gpt2");
  EXPECT_EQ(gpt2.ffn_hidden, 54);
  EXPECT_EQ(gpt2.heads, 6);
  EXPECT_EQ(gpt2.positions, PositionKind::kLearned);
  EXPECT_TRUE(gpt2.tied && gpt2.biases && gpt2.qkv_biases);
  const ModelConfig llama3 = model_of(golden("llama3"));
  EXPECT_EQ(llama3.rotary_scaling.kind, RotaryScaling::Kind::kLlama3);
  EXPECT_EQ(llama3.rotary_base, 500000);
  EXPECT_EQ(llama3.rotary_scaling.original_positions, 32);
  EXPECT_EQ(llama3.groups, 2);
  const ModelConfig qwen2 = model_of(golden("qwen2"));
  EXPECT_TRUE(qwen2.qkv_biases && !qwen2.biases && !qwen2.window_before);
  const ModelConfig qwen3 = model_of(golden("qwen3"));
  EXPECT_TRUE(qwen3.head_norms && !qwen3.qkv_biases);
  EXPECT_EQ(qwen3.head_size, 12);
  EXPECT_EQ(model_of(golden("mistral")).window_before, 8);
  const ModelConfig bloom = model_of(golden("bloom"));
  EXPECT_TRUE(bloom.embedding_norm && bloom.biases && bloom.output_bias && bloom.tied);
  EXPECT_EQ(bloom.positions, PositionKind::kAlibi);
  EXPECT_EQ(bloom.ffn_hidden, 144);
  const ModelConfig internlm = model_of(golden("internlm"));
  EXPECT_TRUE(internlm.qkv_biases && internlm.output_bias && !internlm.biases);
  EXPECT_EQ(model_of(golden("internlm2")).rotary_base, 1e6);
  EXPECT_FALSE(model_of(golden("internlm2")).qkv_biases);
  EXPECT_EQ(model_of(golden("baichuan")).positions, PositionKind::kRotary);
  EXPECT_FALSE(model_of(golden("baichuan")).normalized_head);
  EXPECT_EQ(model_of(golden("baichuan-13b")).positions, PositionKind::kAlibi);
  EXPECT_TRUE(model_of(golden("baichuan2")).normalized_head);
  EXPECT_EQ(model_of(golden("phi3")).window_before, 8);
  const ModelConfig gemma2 = model_of(golden("gemma2"));
  EXPECT_TRUE(gemma2.end_norms && gemma2.gains_from_one && gemma2.scaled_embedding);
  EXPECT_EQ(gemma2.attention_soft_cap, 3);
  EXPECT_EQ(gemma2.logit_soft_cap, 5);
  EXPECT_EQ(gemma2.full_attention_every, 2);
  EXPECT_EQ(gemma2.window_before, 8);
  const ModelConfig gemma3 = model_of(golden("gemma3"));
  EXPECT_TRUE(gemma3.head_norms && gemma3.attention_soft_cap == 0);
  EXPECT_EQ(gemma3.local_rotary_base, 10000);
  EXPECT_EQ(gemma3.rotary_base, 1e6);
  EXPECT_EQ(gemma3.rotary_scaling.factor, 8);
  EXPECT_EQ(model_of(golden("smollm3")).no_rotary_every, 2);
  Json smollm3 = golden("smollm3");
  for (const char* key : {"no_rope_layers", "no_rope_layer_interval", "layer_types"})
    smollm3.erase(key);
  EXPECT_EQ(model_of(smollm3).no_rotary_every, 4);
  smollm3["num_hidden_layers"] = 3;
  EXPECT_EQ(model_of(smollm3).no_rotary_every, 0);
  const ModelConfig stablelm = model_of(golden("stablelm"));
  EXPECT_EQ(stablelm.norm, NormKind::kLayer);
  EXPECT_EQ(stablelm.rotary_channels(), 2);
}

TEST(HfModel, HasTheFactorsOfItsFile) {
  for (const char* name : {"granite", "granite4"}) {
    SCOPED_TRACE(name);
    const ModelConfig granite = model_of(golden(name));
    EXPECT_EQ(granite.family, "granite");
    EXPECT_EQ(granite.embedding_factor, 3);
    EXPECT_EQ(granite.branch_factor, 0.4);
    EXPECT_EQ(granite.logit_divisor, 2.5);
    EXPECT_EQ(granite.score_factor, 0.2);
    EXPECT_EQ(granite.ffn_hidden, 54);
    EXPECT_EQ(ModelOptions::of(granite).resolve({}), granite);
    Json bare = golden(name);
    for (const char* key : {"embedding_multiplier", "residual_multiplier", "logits_scaling"})
      bare.erase(key);
    bare["attention_multiplier"] = 1 / std::sqrt(8.0);
    const ModelConfig plain = model_of(bare);
    EXPECT_TRUE(plain.embedding_factor == 1 && plain.branch_factor == 1);
    EXPECT_TRUE(plain.logit_divisor == 1 && !plain.score_factor);
    EXPECT_EQ(ModelOptions::of(plain).resolve({}), plain);
  }
  Json hybrid = golden("granite4");
  hybrid.erase("position_embedding_type");
  EXPECT_EQ(model_of(hybrid).positions, PositionKind::kNone);
}

TEST(HfModel, HasLayersOfMamba) {
  Json config = golden("granite4-mamba");
  const ModelConfig dense = model_of(config);
  ASSERT_TRUE(dense.state_space && !dense.experts);
  EXPECT_EQ(dense.state_layers(), 3);
  EXPECT_EQ(dense.state_space->values(), 2 * dense.hidden);
  // Words of older and newer files mean the same, and so do forms of what has no bound.
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < dense.layers; ++layer)
    types.push_back(dense.has_states(layer) ? "linear_attention" : "full_attention");
  config["layer_types"] = types;
  config["mamba_d_head"] = "auto";
  config["time_step_limit"] = {0.0, {{"__float__", "Infinity"}}};
  EXPECT_EQ(model_of(config), dense);
  std::string text = config.dump();
  const std::string named = R"({"__float__":"Infinity"})";
  text.replace(text.find(named), named.size(), "Infinity");
  EXPECT_EQ(HfConfig(text, "config.json").bounds("time_step_limit")->first, 0);
  EXPECT_TRUE(std::isinf(HfConfig(text, "config.json").bounds("time_step_limit")->second));
  // Where no types are named, all layers are of Mamba.
  config.erase("layer_types");
  EXPECT_EQ(model_of(config).state_layers(), dense.layers);
  const ModelConfig experts = model_of(golden("granite4-mamba-moe"));
  ASSERT_TRUE(experts.state_space && experts.experts);
  EXPECT_GT(experts.experts->shared_ffn_hidden, 0);
  for (const ModelConfig& one : {dense, experts}) EXPECT_EQ(ModelOptions::of(one).resolve({}), one);
}

// Of LFM2: widths follow from others, and layers are named in two ways.
TEST(HfModel, HasShortConvolutions) {
  Json config = golden("lfm2");
  const ModelConfig model = model_of(config);
  ASSERT_TRUE(model.short_convolution);
  EXPECT_EQ(model.short_convolution->attention_layers, (std::vector<std::int64_t>{1}));
  EXPECT_EQ(model.ffn_hidden, 48);  // 1.3 times two thirds of 53, up to a multiple of 6
  EXPECT_EQ(model.norm_eps, 1e-5);
  const ModelConfig biased = model_of(golden("lfm2-biases"));
  EXPECT_TRUE(biased.short_convolution->biases && !biased.tied);
  EXPECT_EQ(biased.short_convolution->width, 5);
  EXPECT_EQ(biased.ffn_hidden, 54);
  const ModelConfig experts = model_of(golden("lfm2-moe"));
  ASSERT_TRUE(experts.experts && experts.experts->choice_bias && experts.experts->normalized);
  EXPECT_EQ(experts.experts->score, ScoreKind::kSigmoid);
  EXPECT_EQ(experts.experts->dense_layers, (std::vector<std::int64_t>{0}));
  for (const ModelConfig& one : {model, biased, experts})
    EXPECT_EQ(ModelOptions::of(one).resolve({}), one);
  const auto with = [](Json changed, const std::function<void(Json&)>& change) {
    change(changed);
    return model_of(changed);
  };
  EXPECT_EQ(with(config,
                 [](Json& c) {
                   for (const char* key : {"layer_types", "norm_eps", "conv_L_cache"}) c.erase(key);
                   c["full_attn_idxs"] = {1};
                   c["block_ff_dim"] = 53;
                   c.erase("intermediate_size");
                 }),
            model);
  EXPECT_EQ(with(config, [](Json& c) { c["block_ffn_dim_multiplier"] = nullptr; }).ffn_hidden, 35);
  EXPECT_EQ(with(config, [](Json& c) { c.erase("block_multiple_of"); }).ffn_hidden, 256);
  // Without a word for them all layers have attention.
  const ModelConfig attention = with(config, [](Json& c) { c.erase("layer_types"); });
  EXPECT_FALSE(attention.short_convolution);
  EXPECT_EQ(ModelOptions::of(attention).resolve({}), attention);
  const auto refused = [&](const char* folder, const char* key, const Json& value) {
    return message_of(Fault::kData, [&] {
      Json changed = golden(folder);
      changed[key] = value;
      model_of(changed);
    });
  };
  EXPECT_THAT(refused("lfm2", "layer_types", {"conv", "full_attention", "conv", "mamba"}),
              HasSubstr("wanted conv or full_attention in each layer"));
  EXPECT_THAT(refused("lfm2", "layer_types", {"conv", "conv"}), HasSubstr("wanted 4 layers"));
  EXPECT_THAT(
      refused("lfm2", "block_ffn_dim_multiplier", -1),
      HasSubstr("block_ffn_dim_multiplier: got -1, wanted a factor of 35 that gives a width"));
  EXPECT_THAT(refused("lfm2", "hidden_act", "gelu"), HasSubstr("hidden_act: got \"gelu\""));
  EXPECT_THAT(refused("lfm2", "conv_L_cache", 300), HasSubstr("--short-conv-kernel-dim: got 300"));
  EXPECT_THAT(refused("lfm2-moe", "layer_types", nullptr), HasSubstr("layer_types: got"));
  EXPECT_THAT(refused("lfm2-moe", "num_dense_layers", 0.5),
              HasSubstr("num_dense_layers: got 0.5, wanted a number of layers"));
}

TEST(HfModel, HasTheLayersOfItsLetters) {
  Json config = golden("nemotron-h-moe");
  const ModelConfig model = model_of(config);  // MEM*EE-
  EXPECT_EQ(*StateSpaceOptions::of(model).pattern, "MEM*EE-");
  EXPECT_EQ(model.layers, 5);
  EXPECT_EQ(model.mlp_layers, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(ModelOptions::of(model).resolve({}), model);
  config.erase("layers_block_type");
  config["hybrid_override_pattern"] = "MEM*EE-";
  EXPECT_EQ(model_of(config), model);
  config["layers_block_type"] = {"mamba", "conv"};
  EXPECT_THAT(message_of(Fault::kData, [&] { model_of(config); }),
              HasSubstr("layers_block_type: got"));
  config.erase("layers_block_type");
  config["moe_latent_size"] = 16;
  EXPECT_THAT(message_of(Fault::kData, [&] { model_of(config); }),
              HasSubstr("moe_latent_size: got 16, wanted null"));
}

TEST(HfModel, HasOneNormAndAHeadWithABias) {
  const ModelConfig phi = model_of(golden("phi"));
  EXPECT_TRUE(phi.single_norm && phi.head_bias && phi.qkv_biases && !phi.rotary_pairs);
  EXPECT_EQ(phi.rotary_channels(), 2);
  EXPECT_EQ(phi.groups, 2);
  const ModelConfig gptj = model_of(golden("gptj"));
  EXPECT_TRUE(gptj.single_norm && gptj.head_bias && !gptj.qkv_biases && gptj.rotary_pairs);
  EXPECT_EQ(gptj.rotary_channels(), 4);
  for (const ModelConfig& one : {phi, gptj}) EXPECT_EQ(ModelOptions::of(one).resolve({}), one);
  // A share of channels that rounding does not make smaller.
  Json config = golden("gptj");
  for (std::int64_t width = 2; width <= 64; width += 2) {
    config["n_embd"] = 6 * width;
    for (std::int64_t channels = 2; channels <= width; channels += 2) {
      config["rotary_dim"] = channels;
      EXPECT_EQ(model_of(config).rotary_channels(), channels) << width;
    }
  }
}

TEST(HfModel, HasTheNormsAndWindowsOfOlmo) {
  const ModelConfig olmo2 = model_of(golden("olmo2"));
  EXPECT_TRUE(!olmo2.start_norms && olmo2.end_norms && olmo2.head_norms && olmo2.joint_head_norms);
  EXPECT_EQ(ModelOptions::of(olmo2).resolve({}), olmo2);
  const ModelConfig olmo3 = model_of(golden("olmo3"));
  EXPECT_EQ(olmo3.window_before, 8);
  EXPECT_EQ(olmo3.full_attention_every, 2);
  EXPECT_EQ(olmo3.rotary_scaling.kind, RotaryScaling::Kind::kYarn);
  EXPECT_EQ(olmo3.local_rotary_base, 10000);
  EXPECT_EQ(ModelOptions::of(olmo3).resolve({}), olmo3);
  // The keys of Transformers 4, and what it takes where they are absent.
  Json older = golden("olmo3");
  for (const char* key : {"rope_parameters", "layer_types", "sliding_window"}) older.erase(key);
  const ModelConfig plain = model_of(older);
  EXPECT_EQ(plain.window_before, 4095);
  EXPECT_EQ(plain.full_attention_every, 4);
  EXPECT_EQ(plain.rotary_base, 500000);
  EXPECT_FALSE(plain.local_rotary_base);
  older["rope_theta"] = 1000.0;
  older["rope_scaling"] = {
      {"rope_type", "yarn"}, {"factor", 2.0}, {"original_max_position_embeddings", 64}};
  EXPECT_EQ(model_of(older).rotary_base, 1000);
  EXPECT_EQ(model_of(older).rotary_scaling.factor, 2);
  EXPECT_EQ(model_of(older).local_rotary_base, 1000);
}

TEST(HfModel, HasParallelBranchesWhereItsFileSaysSo) {
  const auto edited = [](const std::string& name, const std::function<void(Json&)>& edit) {
    Json config = golden(name);
    edit(config);
    return model_of(config);
  };
  const ModelConfig neox = model_of(golden("gpt-neox"));
  EXPECT_EQ(neox.family, "gpt_neox");
  EXPECT_TRUE(neox.parallel_residual && !neox.single_norm && neox.qkv_biases && !neox.tied);
  EXPECT_EQ(neox.rotary_channels(), 4);
  // The keys of Transformers 4.
  const ModelConfig older = edited("gpt-neox", [](Json& file) {
    file.erase("rope_parameters");
    file["rotary_pct"] = 0.5;
    file["rotary_emb_base"] = 500;
  });
  EXPECT_EQ(older.rotary_channels(), 4);
  EXPECT_EQ(older.rotary_base, 500);
  const ModelConfig sequential =
      edited("gpt-neox", [](Json& file) { file["use_parallel_residual"] = false; });
  EXPECT_EQ(sequential.family, "gpt2");
  EXPECT_EQ(ModelOptions::of(sequential).resolve({}), sequential);
  const ModelConfig falcon = model_of(golden("falcon"));
  EXPECT_TRUE(falcon.parallel_residual && !falcon.single_norm && !falcon.biases);
  EXPECT_EQ(falcon.groups, 2);
  const ModelConfig small = model_of(golden("falcon-7b"));
  EXPECT_TRUE(small.parallel_residual && small.single_norm && small.tied);
  EXPECT_EQ(small.groups, 1);
  // Of one norm, though the file names two.
  EXPECT_TRUE(
      edited("falcon-7b", [](Json& file) { file["num_ln_in_parallel_attn"] = 2; }).single_norm);
  const ModelConfig branches =
      edited("stablelm", [](Json& file) { file["use_parallel_residual"] = true; });
  EXPECT_TRUE(branches.parallel_residual && branches.single_norm);
}

TEST(HfModel, TakesBiasesByTheNamesOfBothKinds) {
  Json config = golden("internlm3");
  EXPECT_TRUE(model_of(config).qkv_biases && model_of(config).biases);
  for (const char* key : {"attention_bias", "mlp_bias"}) config.erase(key);
  EXPECT_FALSE(model_of(config).qkv_biases || model_of(config).biases);
  config["qkv_bias"] = true;
  EXPECT_TRUE(model_of(config).qkv_biases && !model_of(config).output_bias);
  config["bias"] = true;
  EXPECT_TRUE(model_of(config).output_bias && model_of(config).biases);
  EXPECT_TRUE(model_of(golden("glm4")).end_norms && model_of(golden("glm4")).rotary_pairs);
}

TEST(HfModel, HasTheExpertsOfItsFile) {
  const ModelConfig mixtral = model_of(golden("mixtral"));
  EXPECT_EQ(mixtral.family, "mixtral");
  EXPECT_EQ(mixtral.experts, (ExpertFacts{.experts = 5, .choices = 2, .normalized = true}));
  EXPECT_EQ(mixtral.ffn_hidden, 22);
  EXPECT_EQ(mixtral.rotary_base, 1e6);
  Json config = golden("qwen3-moe");
  const ModelConfig qwen = model_of(config);
  EXPECT_EQ(qwen.experts, (ExpertFacts{.experts = 6, .choices = 3, .normalized = false}));
  EXPECT_EQ(qwen.ffn_hidden, 18);
  EXPECT_TRUE(qwen.head_norms && !qwen.window_before);
  // The published files of Transformers 4 have other names, and keys that change nothing.
  config["num_experts"] = config["num_local_experts"];
  config.erase("num_local_experts");
  config.update(
      {{"max_window_layers", 2}, {"output_router_logits", true}, {"mlp_only_layers", {}}});
  EXPECT_EQ(model_of(config), qwen);
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 0;
  config["sliding_window"] = 9;
  EXPECT_EQ(model_of(config).window_before, 8);
  for (const char* key : {"num_experts", "num_experts_per_tok", "norm_topk_prob"})
    config.erase(key);
  EXPECT_EQ(model_of(config).experts,
            (ExpertFacts{.experts = 128, .choices = 8, .normalized = false}));
  const auto refused = [](const char* name, const char* key, const Json& value) {
    return refusal(name, [&](Json& file) { file[key] = value; });
  };
  EXPECT_THAT(refused("qwen3-moe", "mlp_only_layers", {0, 1}),
              HasSubstr("--moe-layer-freq: no layer has experts"));
  EXPECT_THAT(refused("qwen3-moe", "num_experts", 7),
              HasSubstr("num_experts: got 7, wanted the same as num_local_experts"));
  EXPECT_THAT(refused("mixtral", "router_jitter_noise", 0.1),
              HasSubstr("router_jitter_noise: got 0.1, wanted 0"));
  EXPECT_THAT(refused("mixtral", "num_experts_per_tok", 6),
              HasSubstr("--moe-router-topk: got 6, wanted 1 to 5"));
}

TEST(HfModel, HasExpertsThatSigmoidsWithABiasChoose) {
  Json config = golden("glm4-moe");
  const ModelConfig glm = model_of(config);
  EXPECT_EQ(glm.family, "glm4_moe");
  const ExpertFacts wanted{.experts = 8,
                           .choices = 3,
                           .score = ScoreKind::kSigmoid,
                           .weight_factor = 1.5,
                           .choice_bias = true,
                           .groups = {.count = 4, .chosen = 2, .largest = 2},
                           .ffn_hidden = 14,
                           .shared_ffn_hidden = 14,
                           .dense_layers = {0}};
  EXPECT_EQ(glm.experts, wanted);
  EXPECT_EQ(glm.rotary_share, 0.5);
  EXPECT_TRUE(glm.qkv_biases && !glm.output_bias && !glm.head_norms);
  // Transformers' defaults of absent keys.
  for (const char* key : {"n_group", "topk_group", "routed_scaling_factor", "norm_topk_prob",
                          "first_k_dense_replace", "n_shared_experts", "attention_bias"})
    config.erase(key);
  config["rope_parameters"].erase("partial_rotary_factor");
  const ModelConfig sparse = model_of(config);
  EXPECT_EQ(sparse.experts->groups, ExpertGroups());
  EXPECT_EQ(sparse.experts->weight_factor, 1);
  EXPECT_EQ(sparse.experts->dense_layers, (std::vector<std::int64_t>{0}));
  EXPECT_EQ(sparse.rotary_share, 0.5);
  EXPECT_FALSE(sparse.qkv_biases);
  const auto refused = [](const char* key, const Json& value) {
    return refusal("glm4-moe", [&](Json& file) { file[key] = value; });
  };
  EXPECT_THAT(refused("n_group", 3), HasSubstr("--moe-router-num-groups: got 3, wanted a divisor"));
  EXPECT_THAT(refused("topk_group", 5), HasSubstr("--moe-router-group-topk: got 5, wanted 1 to 4"));
  EXPECT_THAT(refused("first_k_dense_replace", 2),
              HasSubstr("first_k_dense_replace: got 2, wanted 0 or more, and fewer than "
                        "num_hidden_layers"));
}

TEST(HfModel, HasExpertsInSomeLayersAndAnMlpThatAllTokensShare) {
  Json config = golden("qwen2-moe");
  const ModelConfig qwen = model_of(config);
  EXPECT_EQ(qwen.family, "qwen2_moe");
  EXPECT_EQ(qwen.experts, (ExpertFacts{.experts = 6,
                                       .choices = 3,
                                       .normalized = false,
                                       .ffn_hidden = 18,
                                       .shared_ffn_hidden = 26,
                                       .shared_gate = true,
                                       .dense_layers = {0}}));
  EXPECT_EQ(qwen.ffn_hidden, 53);
  EXPECT_TRUE(qwen.qkv_biases && !qwen.head_norms);
  config["decoder_sparse_step"] = 2;
  EXPECT_EQ(model_of(config), qwen);
  config["mlp_only_layers"] = nullptr;
  config["num_hidden_layers"] = 5;
  EXPECT_EQ(model_of(config).experts->dense_layers, (std::vector<std::int64_t>{0, 2, 4}));
  config["decoder_sparse_step"] = 1;
  EXPECT_EQ(model_of(config).ffn_hidden, 18);  // there is no other
  EXPECT_EQ(model_of(config).expert_ffn_hidden(), 18);
  EXPECT_THAT(refusal("qwen2-moe", [](Json& file) { file["use_sliding_window"] = true; }),
              HasSubstr("use_sliding_window: got true, wanted false (no layer has a window)"));
}

TEST(HfModel, HasTheLatentAttentionOfItsFile) {
  Json config = golden("deepseek-v2");
  const ModelConfig lite = model_of(config);
  EXPECT_EQ(lite.family, "deepseek_v2");
  const LatentFacts facts{.query_rank = 0, .rank = 20, .own = 10, .turned = 6, .value = 12};
  EXPECT_EQ(lite.latent, facts);
  EXPECT_TRUE(lite.head_size == 16 && lite.groups == 4 && lite.head_norms && lite.rotary_pairs);
  EXPECT_EQ(lite.rotary_channels(), 6);
  EXPECT_EQ(lite.experts, (ExpertFacts{.experts = 6,
                                       .choices = 3,
                                       .normalized = false,
                                       .ffn_hidden = 18,
                                       .shared_ffn_hidden = 36,
                                       .dense_layers = {0}}));
  config.erase("q_lora_rank");
  EXPECT_EQ(model_of(config).latent->query_rank, 1536);
  config["first_k_dense_replace"] = 2;
  EXPECT_FALSE(model_of(config).experts);
  // Of the norms of latents it is fixed.
  config["rms_norm_eps"] = 1e-5;
  EXPECT_EQ(model_of(config).norm_eps, 1e-5);
  EXPECT_EQ(model_of(config).latent->norm_eps, 1e-6);
  const auto refused = [](const char* key, const Json& value) {
    return refusal("deepseek-v2", [&](Json& file) { file[key] = value; });
  };
  EXPECT_THAT(refused("num_key_value_heads", 2),
              HasSubstr("num_key_value_heads: got 2, wanted num_attention_heads"));
  EXPECT_THAT(refused("topk_method", "noaux_tc"), HasSubstr("wanted greedy or group_limited"));
  EXPECT_THAT(refused("topk_method", "group_limited_greedy"), HasSubstr("n_group: "));
  EXPECT_THAT(refused("attention_bias", true), HasSubstr("attention_bias: got true, wanted false"));
  EXPECT_THAT(refused("v_head_dim", 17), HasSubstr("--v-head-dim: got 17, wanted at most 16"));
}

TEST(HfModel, HasTheRouterOfItsFile) {
  Json config = golden("deepseek-v3");
  const ModelConfig model = model_of(config);
  EXPECT_EQ(model.experts, (ExpertFacts{.experts = 8,
                                        .choices = 3,
                                        .score = ScoreKind::kSigmoid,
                                        .weight_factor = 2.5,
                                        .choice_bias = true,
                                        .groups = {.count = 4, .chosen = 2, .largest = 2},
                                        .ffn_hidden = 18,
                                        .shared_ffn_hidden = 18,
                                        .dense_layers = {0}}));
  EXPECT_EQ(model.family, "deepseek_v3");
  EXPECT_EQ(model.latent->query_rank, 14);
  EXPECT_TRUE(model.rotary_pairs);
  // Flags say all of it.
  EXPECT_EQ(ModelOptions::of(model).resolve({}), model);
  config["rope_interleave"] = false;
  const ModelConfig halves = model_of(config);
  EXPECT_FALSE(halves.rotary_pairs);
  EXPECT_EQ(ModelOptions::of(halves).resolve({}), halves);
  const auto refused = [](const char* key, const Json& value) {
    return refusal("deepseek-v3", [&](Json& file) { file[key] = value; });
  };
  EXPECT_THAT(refused("scoring_func", "softmax"), HasSubstr("wanted sigmoid"));
  EXPECT_THAT(refused("topk_method", "greedy"), HasSubstr("wanted noaux_tc"));
  EXPECT_THAT(refused("attention_bias", true), HasSubstr("wanted false"));
  // V2 has the largest probability of each group.
  config = golden("deepseek-v2");
  config.update({{"topk_method", "group_limited_greedy"},
                 {"n_group", 3},
                 {"topk_group", 2},
                 {"routed_scaling_factor", 16.0}});
  const ExpertFacts groups = *model_of(config).experts;
  EXPECT_EQ(groups.groups, (ExpertGroups{.count = 3, .chosen = 2, .largest = 1}));
  EXPECT_EQ(groups.weight_factor, 16);
}

TEST(HfModel, OfThePublishedV2LiteIsThePreset) {
  const Json yarn = {
      {"beta_fast", 32}, {"beta_slow", 1},          {"factor", 40},
      {"mscale", 0.707}, {"mscale_all_dim", 0.707}, {"original_max_position_embeddings", 4096},
      {"type", "yarn"}};
  const Json config = {{"architectures", {"DeepseekV2ForCausalLM"}},
                       {"aux_loss_alpha", 0.001},
                       {"first_k_dense_replace", 1},
                       {"hidden_act", "silu"},
                       {"hidden_size", 2048},
                       {"intermediate_size", 10944},
                       {"kv_lora_rank", 512},
                       {"max_position_embeddings", 163840},
                       {"model_type", "deepseek_v2"},
                       {"moe_intermediate_size", 1408},
                       {"moe_layer_freq", 1},
                       {"n_group", 1},
                       {"n_routed_experts", 64},
                       {"n_shared_experts", 2},
                       {"num_attention_heads", 16},
                       {"num_experts_per_tok", 6},
                       {"num_hidden_layers", 27},
                       {"num_key_value_heads", 16},
                       {"q_lora_rank", nullptr},
                       {"rms_norm_eps", 1e-6},
                       {"rope_scaling", yarn},
                       {"rope_theta", 10000},
                       {"scoring_func", "softmax"},
                       {"topk_method", "greedy"},
                       {"vocab_size", 102400}};
  EXPECT_EQ(model_of(config), preset("deepseek-v2-lite"));
}

TEST(HfModel, IsTheSameByTheKeysOfTransformers4) {
  for (const char* name :
       {"llama3", "llama", "mistral", "mixtral", "qwen2", "qwen3", "deepseek-v2"}) {
    Json config = golden(name);
    const ModelConfig newer = model_of(config);
    Json rope = config["rope_parameters"];
    config.erase("rope_parameters");
    config["rope_theta"] = rope["rope_theta"];
    rope.erase("rope_theta");
    config["rope_scaling"] = rope["rope_type"] == "default" ? Json() : rope;
    if (config["rope_scaling"].is_object()) {  // as the first files have it
      config["rope_scaling"]["type"] = rope["rope_type"];
      config["rope_scaling"].erase("rope_type");
    }
    config["torch_dtype"] = config["dtype"];
    config.erase("dtype");
    config.erase("layer_types");
    config["of_tomorrow"] = {{"any", {1, 2}}};
    const ModelConfig older = model_of(config);
    EXPECT_EQ(older.rotary_base, newer.rotary_base) << name;
    EXPECT_EQ(older.rotary_scaling.kind, newer.rotary_scaling.kind) << name;
    EXPECT_EQ(older.rotary_scaling.factor, newer.rotary_scaling.factor) << name;
    EXPECT_EQ(older.rotary_scaling.original_positions, newer.rotary_scaling.original_positions);
    EXPECT_EQ(older.window_before, newer.window_before) << name;
    EXPECT_EQ(older.dtype, newer.dtype) << name;
  }
}

// Seen with Transformers 5.23: rope_scaling, which users add as older texts tell them, replaces all
// of rope_parameters.
TEST(HfModel, TakesTheAngleKeyThatTransformersTakesOfTwo) {
  Json config = golden("llama");
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 5e5}};
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 4.0}};
  const ModelConfig both = model_of(config);
  EXPECT_EQ(both.rotary_scaling.kind, RotaryScaling::Kind::kLinear);
  EXPECT_EQ(both.rotary_scaling.factor, 4);
  EXPECT_EQ(both.rotary_base, 10000);
  config["rope_scaling"]["rope_theta"] = 7.0;
  EXPECT_EQ(model_of(config).rotary_base, 7);
  for (const Json& none : {Json(), Json::object()}) {
    config["rope_scaling"] = none;
    EXPECT_EQ(model_of(config).rotary_base, 5e5);
    EXPECT_EQ(model_of(config).rotary_scaling.kind, RotaryScaling::Kind::kNone);
  }
}

// As Gemma 2 and 3 were first published: layers by a pattern, angles by separate keys.
TEST(HfModel, OfGemmaIsTheSameByTheKeysOfTransformers4) {
  for (const char* name : {"gemma2", "gemma3"}) {
    Json config = golden(name);
    const ModelConfig newer = model_of(config);
    Json rope = config["rope_parameters"];
    config.erase("rope_parameters");
    config.erase("layer_types");
    if (rope.contains("full_attention")) {
      config["rope_theta"] = rope["full_attention"]["rope_theta"];
      config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"];
      config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
      config["sliding_window_pattern"] = 2;
    } else {
      config["rope_theta"] = rope["rope_theta"];
    }
    EXPECT_EQ(model_of(config), newer) << name;
  }
}

// By modeling_rope_utils.py and the defaults of configuration_gemma2.py, not by the words alone.
TEST(HfModel, TakesItsFileAsTransformersDoes) {
  const auto changed = [](const std::string& name, const std::function<void(Json&)>& edit) {
    Json config = golden(name);
    edit(config);
    return model_of(config);
  };
  const ModelConfig dynamic = changed("llama", [](Json& config) {
    config["rope_parameters"] = {{"rope_type", "dynamic"},
                                 {"factor", 4.0},
                                 {"rope_theta", 1e4},
                                 {"original_max_position_embeddings", 32}};
  });
  EXPECT_EQ(dynamic.rotary_scaling.original_positions, 128);
  const ModelConfig outer =
      changed("llama3", [](Json& config) { config["original_max_position_embeddings"] = 64; });
  EXPECT_EQ(outer.rotary_scaling.original_positions, 64);

  const char* const activation = "hidden_activation";
  for (const char* name : {"gemma2", "gemma3"}) {
    EXPECT_EQ(changed(name, [&](Json& config) { config[activation] = "gelu"; }).activation,
              ActivationKind::kGeluErf);
    // Which is the first Gemma's key.
    EXPECT_EQ(changed(name, [](Json& config) { config["hidden_act"] = "silu"; }).activation,
              ActivationKind::kGeluTanh);
  }
  const ModelConfig bare = changed("gemma2", [](Json& config) {
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "sliding_window"})
      config.erase(key);
  });
  EXPECT_EQ(bare.attention_soft_cap, 50);
  EXPECT_EQ(bare.logit_soft_cap, 30);
  EXPECT_EQ(bare.window_before, 4095);
  const ModelConfig uncapped = changed("gemma2", [](Json& config) {
    config["attn_logit_softcapping"] = config["final_logit_softcapping"] = nullptr;
  });
  EXPECT_EQ(uncapped.attention_soft_cap, 0);
  EXPECT_EQ(uncapped.logit_soft_cap, 0);
  EXPECT_EQ(
      changed("gemma3",
              [](Json& config) { config["rope_parameters"]["full_attention"].erase("rope_theta"); })
          .rotary_base,
      1e6);
}

// Found by models of Transformers whose config.json was edited: EDITED of
// tools/oracle/huggingface.py.
TEST(HfModel, OfAFileThatLacksKeysHasTheDefaultsOfTransformers) {
  const auto without = [](const std::string& name, std::initializer_list<const char*> keys) {
    Json config = golden(name);
    for (const char* key : keys) EXPECT_EQ(config.erase(key), 1U) << key;
    return model_of(config);
  };
  EXPECT_EQ(without("phi3", {"rms_norm_eps"}).norm_eps, 1e-5);
  EXPECT_EQ(without("llama", {"rms_norm_eps"}).norm_eps, 1e-6);
  EXPECT_EQ(without("bloom", {"layer_norm_epsilon"}).norm_eps, 1e-5);
  const ModelConfig gemma2 = without("gemma2", {"attn_logit_softcapping", "final_logit_softcapping",
                                                "sliding_window", "head_dim"});
  EXPECT_EQ(gemma2.attention_soft_cap, 50);
  EXPECT_EQ(gemma2.logit_soft_cap, 30);
  EXPECT_EQ(gemma2.window_before, 4095);
  EXPECT_EQ(gemma2.head_size, 256);
  EXPECT_EQ(without("gemma3", {"sliding_window"}).window_before, 4095);
  Json gemma3 = golden("gemma3");
  gemma3["rope_parameters"]["full_attention"].erase("rope_theta");
  EXPECT_EQ(model_of(gemma3).rotary_base, 1e6);
  Json caps = golden("gemma2");
  caps["attn_logit_softcapping"] = caps["final_logit_softcapping"] = caps["sliding_window"] =
      nullptr;
  const ModelConfig open = model_of(caps);
  EXPECT_TRUE(open.attention_soft_cap == 0 && open.logit_soft_cap == 0 && !open.window_before);
  Json window = golden("qwen2");
  window["use_sliding_window"] = true;
  window["max_window_layers"] = 0;
  window.erase("sliding_window");
  window.erase("layer_types");
  EXPECT_EQ(model_of(window).window_before, 4095);
  // Transformers' max_window_layers is 28: layers before it have no window.
  window.erase("max_window_layers");
  window["num_hidden_layers"] = 28;
  EXPECT_FALSE(model_of(window).window_before);
  window["num_hidden_layers"] = 29;
  EXPECT_THAT(message_of(Fault::kData, [&] { model_of(window); }),
              HasSubstr("max_window_layers: got nothing, wanted 0"));
  Json groups = golden("mistral");
  groups["num_attention_heads"] = 16;
  groups["head_dim"] = 4;
  groups["num_key_value_heads"] = nullptr;
  EXPECT_EQ(model_of(groups).groups, 16);
  groups.erase("num_key_value_heads");
  EXPECT_EQ(model_of(groups).groups, 8);
}

// As Transformers chooses.
TEST(HfModel, OfAFileThatSaysItTwiceIsByOneOfThem) {
  Json llama = golden("llama");
  llama["rope_theta"] = 500.0;
  llama["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 4.0}};
  EXPECT_EQ(model_of(llama).rotary_base, 500);
  EXPECT_EQ(model_of(llama).rotary_scaling.factor, 4);
  llama["rope_scaling"] = Json::object();
  EXPECT_EQ(model_of(llama).rotary_base, 10000);
  Json llama3 = golden("llama3");
  llama3["original_max_position_embeddings"] = 512;
  EXPECT_EQ(model_of(llama3).rotary_scaling.original_positions, 512);
  Json dynamic = golden("llama");
  dynamic["rope_parameters"] = {
      {"rope_type", "dynamic"}, {"factor", 4.0}, {"original_max_position_embeddings", 8}};
  EXPECT_EQ(model_of(dynamic).rotary_scaling.original_positions, 128);
  Json bloom = golden("bloom");
  bloom["n_embed"] = 48;
  EXPECT_EQ(model_of(bloom).hidden, 48);
  // Only files of the first Gemma mean the other function by "gelu".
  Json gemma2 = golden("gemma2");
  gemma2["hidden_activation"] = "gelu";
  EXPECT_EQ(model_of(gemma2).activation, ActivationKind::kGeluErf);
  gemma2.erase("hidden_activation");
  gemma2["hidden_act"] = "silu";
  EXPECT_EQ(model_of(gemma2).activation, ActivationKind::kGeluTanh);
  gemma2["model_type"] = "gemma";
  gemma2["architectures"] = {"GemmaForCausalLM"};
  gemma2["attn_logit_softcapping"] = gemma2["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(model_of(gemma2).activation, ActivationKind::kSilu);
  gemma2["hidden_act"] = "gelu";
  EXPECT_EQ(model_of(gemma2).activation, ActivationKind::kGeluTanh);
}

TEST(HfModel, ComputesIn16BitsWhereItsFileSaysBfloat16) {
  Json config = golden("llama");
  config["dtype"] = "bfloat16";
  EXPECT_EQ(model_of(config).dtype, DType::kBF16);
  config["dtype"] = "float16";
  EXPECT_EQ(model_of(config).dtype, DType::kF32);
}

TEST(HfModel, OfWhatPitonDoesNotHaveIsRefusedByName) {
  const auto key = [](const std::string& name, const char* key, const Json& value) {
    return refusal(name, [&](Json& config) { config[key] = value; });
  };
  EXPECT_THAT(key("gemma3", "attn_logit_softcapping", 5.0),
              HasSubstr("attn_logit_softcapping: got 5.0, wanted null"));
  EXPECT_THAT(key("gemma2", "use_bidirectional_attention", true),
              HasSubstr("use_bidirectional_attention: got true, wanted false"));
  EXPECT_THAT(key("gemma2", "partial_rotary_factor", 0.5),
              HasSubstr("partial_rotary_factor: got 0.5, wanted 1"));
  EXPECT_THAT(key("mistral", "layer_types", {"full_attention", "full_attention"}),
              HasSubstr("wanted sliding_attention, as sliding_window is not null"));
  for (const char* type : {"yarn", "linear", "dynamic"}) {
    EXPECT_THAT(key("phi3", "rope_scaling", {{"type", type}, {"factor", 2.0}}),
                HasSubstr("rope_scaling.type: got \"" + std::string(type) +
                          "\", wanted default or longrope"));
  }
  EXPECT_THAT(key("llama", "model_type", "mamba"),
              HasSubstr("config.json: model_type: got \"mamba\", wanted gpt2, llama, aquila, "));
  EXPECT_THAT(key("llama", "architectures", {"LlamaForTokenClassification"}),
              HasSubstr("architectures: got [\"LlamaForTokenClassification\"], wanted LlamaFor"));
  EXPECT_THAT(key("llama", "hidden_act", "mish"),
              HasSubstr("hidden_act: got \"mish\", wanted silu"));
  EXPECT_THAT(key("bloom", "apply_residual_connection_post_layernorm", true),
              HasSubstr("got true, wanted false"));
  EXPECT_THAT(key("llama", "final_logit_softcapping", 30.0), HasSubstr("got 30.0, wanted null"));
  EXPECT_THAT(
      key("gemma2", "layer_types", {"full_attention", "full_attention", "sliding_attention"}),
      HasSubstr("layer_types: got [\"full_attention\""));
  for (const char* name : {"gemma2", "gemma3"})
    EXPECT_THAT(key(name, "use_bidirectional_attention", true), HasSubstr("wanted false"));
  // Of Gemma 3 Transformers caps no scores.
  EXPECT_THAT(key("gemma3", "attn_logit_softcapping", 50.0), HasSubstr("got 50.0, wanted null"));
  EXPECT_THAT(key("stablelm", "qk_layernorm", true), HasSubstr("wanted false"));
  EXPECT_THAT(key("internlm", "rotary", {{"type", "xpos"}}), HasSubstr("rotary.type: got"));
  EXPECT_THAT(key("phi3", "embd_pdrop", 0.3), HasSubstr("embd_pdrop: got 0.3"));
  EXPECT_THAT(key("starcoder2", "embedding_dropout", 0.1), HasSubstr("embedding_dropout: got 0.1"));
  EXPECT_THAT(key("falcon", "alibi", true), HasSubstr("alibi: got true, wanted false"));
  EXPECT_THAT(key("falcon", "num_ln_in_parallel_attn", 3), HasSubstr("got 3, wanted 1 or 2"));
  EXPECT_THAT(key("falcon", "parallel_attn", false), HasSubstr("parallel_attn: got false"));
  EXPECT_THAT(key("falcon", "hidden_dropout", 0.1), HasSubstr("hidden_dropout: got 0.1"));
  EXPECT_THAT(key("smollm3", "no_rope_layers", {0, 1, 1, 1}),
              HasSubstr("no_rope_layers: got [0,1,1,1], wanted 0 for every layer whose number N"));
  EXPECT_THAT(key("smollm3", "no_rope_layers", {1, 0}),
              HasSubstr("no_rope_layers: got [1,0], wanted a number for each of 4 layers"));
  EXPECT_THAT(key("gptj", "rotary_dim", nullptr), HasSubstr("rotary_dim: got nothing"));
  EXPECT_THAT(key("gptj", "rotary_dim", 8), HasSubstr("an even number, at most n_embd over"));
  EXPECT_THAT(key("phi", "qk_layernorm", true), HasSubstr("qk_layernorm: got true"));
  const auto mamba = [&](const char* name, const Json& value) {
    return key("granite4-mamba", name, value);
  };
  EXPECT_THAT(mamba("layer_types", {"attention", "mamba", "attention", "conv"}),
              HasSubstr("wanted mamba or attention in each layer"));
  EXPECT_THAT(mamba("layer_types", {"attention", "mamba"}), HasSubstr("wanted 4 layers"));
  EXPECT_THAT(mamba("mamba_proj_bias", true), HasSubstr("mamba_proj_bias: got true"));
  EXPECT_THAT(mamba("mamba_conv_bias", false), HasSubstr("mamba_conv_bias: got false"));
  EXPECT_THAT(mamba("mamba_d_head", 7), HasSubstr("mamba_n_heads: got"));
  EXPECT_THAT(mamba("time_step_limit", {0.001, 0.1}), HasSubstr("wanted [0, Infinity]"));
  EXPECT_THAT(mamba("time_step_limit", 3), HasSubstr("wanted a list of two numbers"));
  EXPECT_THAT(key("granite4", "position_embedding_type", "alibi"), HasSubstr("wanted rope, nope"));
  EXPECT_THAT(key("granite", "residual_multiplier", 0), HasSubstr("--residual-multiplier"));
  EXPECT_THAT(key("olmo3", "layer_types", {"full_attention", "sliding_attention"}),
              HasSubstr("layer_types: got"));
  EXPECT_THAT(key("smollm3", "use_sliding_window", true),
              HasSubstr("use_sliding_window: got true, wanted false"));
  EXPECT_THAT(key("baichuan2", "tie_word_embeddings", true), HasSubstr("--normalized-head"));
  EXPECT_THAT(
      key("llama", "quantization_config", {{"quant_method", "hqq"}}),
      HasSubstr("quantization_config.quant_method: got \"hqq\", wanted compressed-tensors"));
  EXPECT_THAT(key("llama", "rope_parameters", {{"rope_type", "magic"}}),
              HasSubstr("rope_parameters.rope_type: got \"magic\""));
  EXPECT_THAT(key("llama", "rope_parameters", {{"rope_type", "linear"}}),
              HasSubstr("rope_parameters.factor: got nothing, wanted a number"));
  EXPECT_THAT(key("gpt2", "scale_attn_by_inverse_layer_idx", true),
              HasSubstr("got true, wanted false"));
  EXPECT_THAT(key("gpt2", "embd_pdrop", 0.3), HasSubstr("embd_pdrop: got 0.3"));
  EXPECT_THAT(refusal("qwen2",
                      [](Json& config) {
                        config["use_sliding_window"] = true;
                        config["layer_types"] = {"sliding_attention", "full_attention"};
                      }),
              HasSubstr("layer_types: got [\"sliding_attention\",\"full_attention\"]"));
  EXPECT_THAT(refusal("qwen2",
                      [](Json& config) {
                        config.erase("layer_types");
                        config["use_sliding_window"] = true;
                        config["max_window_layers"] = 1;
                      }),
              HasSubstr("max_window_layers: got 1"));
  EXPECT_THAT(refusal("mistral", [](Json& config) { config.erase("sliding_window"); }),
              HasSubstr("sliding_window: got nothing"));
  EXPECT_THAT(key("mistral", "layer_types", {"full_attention", "full_attention"}),
              HasSubstr("wanted sliding_attention, as sliding_window is not null"));
  // Transformers passes it over in these families, and others do not.
  for (const char* family : {"llama", "mistral", "qwen2", "qwen3", "gemma2"}) {
    EXPECT_THAT(
        refusal(family,
                [](Json& config) { config["rope_parameters"]["partial_rotary_factor"] = 0.5; }),
        HasSubstr("partial_rotary_factor: got 0.5, wanted 1: this family rotates all channels"));
  }
}

TEST(HfModel, OfSizesOfAFamilyThatPitonDoesNotHaveIsRefusedByName) {
  const auto key = [](const std::string& name, const char* key, const Json& value) {
    return refusal(name, [&](Json& config) { config[key] = value; });
  };
  EXPECT_THAT(key("opt", "do_layer_norm_before", false),
              HasSubstr("do_layer_norm_before: got false, wanted the other sizes than OPT-350m"));
  EXPECT_THAT(key("opt", "word_embed_proj_dim", 20), HasSubstr("word_embed_proj_dim: got 20"));
  EXPECT_THAT(key("cohere", "use_qk_norm", true), HasSubstr("use_qk_norm: got true"));
  EXPECT_THAT(key("olmoe", "clip_qkv", 8.0), HasSubstr("clip_qkv: got 8.0, wanted null"));
  EXPECT_THAT(key("ernie4.5-moe", "use_bias", true), HasSubstr("use_bias: got true"));
  EXPECT_THAT(key("ernie4.5-moe", "moe_layer_start_index", 9),
              HasSubstr("moe_layer_start_index: got 9, wanted a layer of the model"));
  EXPECT_THAT(key("hunyuan", "use_cla", true), HasSubstr("use_cla: got true, wanted false"));
  EXPECT_THAT(key("cohere2", "sliding_window", nullptr), HasSubstr("sliding_window: got nothing"));
}

TEST(HfModel, WithSizesThatCannotBeIsRefusedByName) {
  for (const Json& bad : {Json(0), Json(-4), Json(1.5), Json("4"), Json(true), Json::array(),
                          Json(std::int64_t{1} << 60), Json(UINT64_MAX), Json()}) {
    for (const char* key : {"hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size",
                            "num_attention_heads", "max_position_embeddings"}) {
      EXPECT_THAT(refusal("llama", [&](Json& config) { config[key] = bad; }),
                  HasSubstr(std::string(key) + ": got "))
          << bad.dump();
    }
  }
  EXPECT_THAT(refusal("llama", [](Json& config) { config["num_key_value_heads"] = 3; }),
              HasSubstr("config.json: describes an impossible model: --num-query-groups"));
  EXPECT_THAT(refusal("llama",
                      [](Json& config) {
                        config["num_hidden_layers"] = 2'000'000'000;
                        config["hidden_size"] = 2'000'000'000;
                        config["intermediate_size"] = 2'000'000'000;
                      }),
              HasSubstr("more than can be counted"));
  EXPECT_THAT(refusal("llama", [](Json& config) { config["rms_norm_eps"] = "tiny"; }),
              HasSubstr("rms_norm_eps: got \"tiny\", wanted a number"));
  EXPECT_THAT(refusal("llama", [](Json& config) { config["tie_word_embeddings"] = 1; }),
              HasSubstr("tie_word_embeddings: got 1, wanted true or false"));
}

TEST(HfConfig, ThatIsNoObjectOrNestsTooDeepIsRefused) {
  const auto message = [](const std::string& text) {
    return message_of(Fault::kData, [&] { HfConfig(text, "c.json"); });
  };
  EXPECT_THAT(message("{\"a\": "), HasSubstr("c.json: got text that is not JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("got array, wanted a JSON object"));
  EXPECT_THAT(message(""), HasSubstr("not JSON"));
  EXPECT_THAT(message("{\"a\": \"\xff\"}"), HasSubstr("not JSON"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  EXPECT_THAT(message(deep), HasSubstr("c.json"));
}

}  // namespace
}  // namespace piton
