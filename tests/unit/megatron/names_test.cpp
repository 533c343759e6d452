// Names of tensors in Megatron's module trees.
#include "megatron/format/names.h"

#include <gtest/gtest.h>

#include <string_view>

#include "megatron/distributed/torch_dist_names.h"

namespace piton {
namespace {

TEST(MegatronNames, OfEveryTreeAreReadBack) {
  for (const MegatronTree tree :
       {MegatronTree::kLegacy, MegatronTree::kCore, MegatronTree::kTransformer}) {
    for (const char* key :
         {"word_embeddings.weight", "position_embeddings.weight", "layers.12.input_norm.weight",
          "layers.0.input_norm.bias", "layers.3.qkv.weight", "layers.3.qkv.bias",
          "layers.3.dense.weight", "layers.3.q_norm.weight", "layers.3.k_norm.weight",
          "layers.3.post_norm.weight", "layers.3.fc1.weight", "layers.3.fc2.bias",
          "final_norm.weight", "final_norm.bias", "output.weight", "embedding_norm.bias"}) {
      EXPECT_EQ(megatron_key(megatron_name(key, tree)), key) << megatron_name(key, tree);
    }
  }
  EXPECT_EQ(megatron_name("layers.3.input_norm.weight", MegatronTree::kTransformer),
            "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight");
  EXPECT_EQ(megatron_name("layers.3.fc1.weight", MegatronTree::kLegacy),
            "language_model.encoder.layers.3.mlp.dense_h_to_4h.weight");
}

TEST(MegatronNames, OfExpertsAreReadBack) {
  for (const MegatronTree tree : {MegatronTree::kCore, MegatronTree::kTransformer}) {
    for (const char* key : {"layers.3.router.weight", "layers.3.experts.12.fc1.weight",
                            "layers.3.experts.0.fc2.weight", "layers.3.shared_fc1.weight",
                            "layers.3.shared_fc2.weight", "layers.3.shared_gate.weight"})
      EXPECT_EQ(megatron_key(megatron_name(key, tree)), key) << megatron_name(key, tree);
  }
  EXPECT_EQ(megatron_name("layers.3.experts.12.fc1.weight", MegatronTree::kTransformer),
            "decoder.layers.3.mlp.experts.local_experts.12.linear_fc1.weight");
  EXPECT_EQ(megatron_name("layers.3.router.bias", MegatronTree::kCore),
            "decoder.layers.3.mlp.router.expert_bias");
  EXPECT_EQ(megatron_key("decoder.layers.3.mlp.router.expert_bias"), "layers.3.router.bias");
  EXPECT_EQ(megatron_key("decoder.layers.3.mlp.router.bias"), "layers.3.router.logit_bias");
  // Of products of several experts in Transformer Engine; only for reading.
  EXPECT_EQ(megatron_key("decoder.layers.3.mlp.experts.linear_fc2.weight12"),
            "layers.3.experts.12.fc2.weight");
  for (const char* name : {"local_experts.linear_fc1.weight", "local_experts.x.linear_fc1.weight",
                           "local_experts.1.linear_fc1.biases", "local_experts.1.linear_fc3.weight",
                           "linear_fc1.weight", "linear_fc1.weight1x", "linear_fc3.weight1"})
    EXPECT_EQ(megatron_key(std::string("decoder.layers.3.mlp.experts.") + name), std::nullopt)
        << name;
}

TEST(MegatronNames, OfEncodersAreReadBack) {
  const auto both = MegatronStacks::kBoth;
  for (const MegatronTree tree :
       {MegatronTree::kLegacy, MegatronTree::kCore, MegatronTree::kTransformer}) {
    for (const char* key :
         {"token_types.weight", "pooler.weight", "lm_dense.bias", "lm_norm.weight", "output.bias",
          "binary_head.weight", "layers.1.post_norm.weight", "final_norm.bias"}) {
      const std::string name = megatron_name(key, tree, MegatronStacks::kEncoder);
      EXPECT_EQ(megatron_key(name), key) << name;
    }
    for (const char* key : {"layers.0.cross_q.weight", "layers.0.cross_kv.bias",
                            "layers.0.cross_dense.weight", "output.bias", "output.weight"}) {
      EXPECT_EQ(megatron_key(megatron_name(key, tree, both)), key);
    }
    EXPECT_TRUE(is_in_encoder(megatron_name("encoder.layers.0.fc1.weight", tree, both)));
    EXPECT_TRUE(is_in_encoder(megatron_name("encoder.final_norm.weight", tree, both)));
    EXPECT_FALSE(is_in_encoder(megatron_name("layers.0.fc1.weight", tree, both)));
    EXPECT_FALSE(is_in_encoder(megatron_name("final_norm.weight", tree, both)));
  }
  EXPECT_EQ(megatron_name("layers.0.qkv.weight", MegatronTree::kCore, MegatronStacks::kEncoder),
            "encoder.layers.0.self_attention.linear_qkv.weight");
  EXPECT_EQ(megatron_name("layers.0.cross_norm.weight", MegatronTree::kLegacy, both),
            "language_model.decoder.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(megatron_name("layers.0.post_norm.weight", MegatronTree::kLegacy, both),
            "language_model.decoder.layers.0.post_inter_attention_layernorm.weight");
  EXPECT_EQ(megatron_name("encoder.layers.0.post_norm.weight", MegatronTree::kLegacy, both),
            "language_model.encoder.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(megatron_name("output.bias", MegatronTree::kCore, both), "lm_head.output_layer.bias");
}

TEST(MegatronNames, OfOtherVersionsAreKnown) {
  EXPECT_EQ(megatron_key("language_model.transformer.layers.1.attention.query_key_value.bias"),
            "layers.1.qkv.bias");
  EXPECT_EQ(megatron_key("language_model.encoder.layers.0.post_attention_norm.weight"),
            "layers.0.post_norm.weight");
  EXPECT_EQ(megatron_key("language_model.encoder.layers.0.mlp.proj.weight"), "layers.0.fc1.weight");
  EXPECT_EQ(megatron_key("language_model.encoder.final_norm.weight"), "final_norm.weight");
  EXPECT_EQ(megatron_key("word_embeddings_for_head.weight"), "head_copy.weight");
  EXPECT_EQ(megatron_key("language_model.pooler.dense.weight"), "pooler.weight");
  EXPECT_EQ(megatron_key("lm_head.norm.bias"), "lm_norm.bias");
  EXPECT_EQ(megatron_key("language_model.adaptor.dense.weight"), std::nullopt);
  EXPECT_EQ(megatron_key("decoder.layers.0.mlp.experts.weight3"), std::nullopt);
  EXPECT_EQ(megatron_key("decoder.layers.0"), std::nullopt);
  EXPECT_TRUE(is_ignored_by_megatron("decoder.layers.0.mlp.linear_fc1._extra_state"));
}

TEST(MegatronNames, OfNewerModelsAreReadBack) {
  for (const MegatronTree tree : {MegatronTree::kCore, MegatronTree::kTransformer}) {
    for (const char* key :
         {"layers.3.sinks", "layers.3.router.logit_bias", "layers.3.experts.2.fc1.bias",
          "layers.3.delta_rate", "layers.3.delta_bias", "layers.3.delta_in.weight",
          "layers.3.delta_in.weight.query", "layers.3.delta_in.weight.alpha",
          "layers.3.delta_filter.weight", "layers.3.delta_filter.weight.value",
          "layers.3.delta_norm.weight", "layers.3.delta_out.weight"})
      EXPECT_EQ(megatron_key(megatron_name(key, tree)), key) << megatron_name(key, tree);
  }
  EXPECT_EQ(megatron_name("layers.3.state_norm.weight", MegatronTree::kTransformer),
            "decoder.layers.3.self_attention.in_proj.layer_norm_weight");
  EXPECT_EQ(megatron_name("layers.3.delta_rate", MegatronTree::kTransformer),
            "decoder.layers.3.self_attention.A_log");
  EXPECT_EQ(megatron_key("decoder.layers.3.mlp.experts.linear_fc2.bias12"),
            "layers.3.experts.12.fc2.bias");
  for (const char* name : {"self_attention.A_log.weight", "self_attention.in_proj.weight.gate",
                           "self_attention.conv1d.bias"})
    EXPECT_EQ(megatron_key(std::string("decoder.layers.3.") + name), std::nullopt) << name;
}

TEST(MegatronNames, OfMindSpeedAreKnown) {
  const std::string layer = "decoder.layers.3.";
  for (const auto& [name, key] : {std::pair{"self_attention.linear_qb.weight", "q_up.weight"},
                                  {"self_attention.linear_kvb.weight", "kv_up.weight"},
                                  {"self_attention.linear_qk_nope.weight", "q_own.weight"},
                                  {"self_attention.linear_qk_rope.weight", "q_turned.weight"},
                                  {"self_attention.linear_kv_nope.weight", "k_own.weight"},
                                  {"self_attention.linear_v.weight", "v_up.weight"},
                                  {"mlp.shared_expert_gate.weight", "shared_gate.weight"},
                                  {"mlp.experts.weight1", "grouped.0.fc1.weight"},
                                  {"mlp.experts.weight2", "grouped.0.fc2.weight"}})
    EXPECT_EQ(megatron_key(layer + name), std::string("layers.3.") + key);
  EXPECT_EQ(megatron_key("mtp_layers.1.eh_proj.weight"), "mtp.layers.1.projection.weight");
  EXPECT_EQ(megatron_key("mtp_layers.1.transformer_layer.input_layernorm.weight"),
            "mtp.layers.1.input_norm.weight");
  EXPECT_EQ(megatron_key("mtp_layers.0.embedding.word_embeddings.weight"),
            "word_embeddings.weight");
  EXPECT_EQ(megatron_key("mtp.final_layernorms.1.weight"), "mtp.layers.1.final_norm.weight");
  EXPECT_EQ(megatron_key("mtp.final_layernorms.weight"), std::nullopt);
  EXPECT_EQ(megatron_key("final_layernorm.weight"), "final_norm.weight");
  for (const char* key : {"mtp.layers.1.final_norm.weight", "final_norm.weight",
                          "mtp.layers.1.q_own.weight", "layers.3.kv_up_norm.weight"})
    EXPECT_EQ(megatron_key(megatron_name(key, MegatronTree::kMindSpeed)), key);
  EXPECT_EQ(with_expert("layers.3.grouped.0.fc1.weight", 2), "layers.3.grouped.2.fc1.weight");
  EXPECT_EQ(key_in_group("layers.3.grouped.2.fc1.weight", 13), "layers.3.experts.13.fc1.weight");
}

// torch_dist has one tensor of all layers under a name without a number, or one for each layer
// under a name with it; so it is of the experts of a layer.
TEST(TorchDistNames, GetTheNumbersThatTheyLack) {
  const auto named = [](const std::string& name) {
    const std::vector<std::int64_t> place{4, 7};
    const StackedName stack(name);
    return fmt::format("{}: {}", stack.dims(), stack.at(std::span(place).first(stack.dims())));
  };
  EXPECT_EQ(named("layers.mlp.linear_fc1.weight"), "1: layers.4.mlp.linear_fc1.weight");
  EXPECT_EQ(named("decoder.layers.mlp.linear_fc1.weight_v"),
            "1: decoder.layers.4.mlp.up_proj.weight");
  EXPECT_EQ(named("decoder.layers.mlp.experts.experts.linear_fc2.weight"),
            "2: decoder.layers.4.mlp.experts.linear_fc2.weight7");
  EXPECT_EQ(named("decoder.layers.12.mlp.experts.experts.linear_fc2.weight"),
            "1: decoder.layers.12.mlp.experts.linear_fc2.weight4");
  EXPECT_EQ(named("decoder.layers.12.mlp.experts.experts.3.linear_fc2.weight"),
            "0: decoder.layers.12.mlp.experts.local_experts.3.linear_fc2.weight");
  for (const std::string name :
       {"decoder.layers.0.mlp.linear_fc1.weight", "layers.12.mlp.linear_fc1.weight", "layers.",
        "decoder.layers.", "decoder.sublayers.mlp.linear_fc1.weight",
        "decoder.final_layernorm.weight", "embedding.word_embeddings.weight", ""}) {
    EXPECT_EQ(named(name), "0: " + name);
  }
}

}  // namespace
}  // namespace piton
