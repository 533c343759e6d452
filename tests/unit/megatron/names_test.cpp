// Names of tensors in Megatron's module trees.
#include "megatron/format/names.h"

#include <gtest/gtest.h>

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

TEST(MegatronNames, OfOtherVersionsAreKnown) {
  EXPECT_EQ(megatron_key("language_model.transformer.layers.1.attention.query_key_value.bias"),
            "layers.1.qkv.bias");
  EXPECT_EQ(megatron_key("language_model.encoder.layers.0.post_attention_norm.weight"),
            "layers.0.post_norm.weight");
  EXPECT_EQ(megatron_key("language_model.encoder.layers.0.mlp.proj.weight"), "layers.0.fc1.weight");
  EXPECT_EQ(megatron_key("language_model.encoder.final_norm.weight"), "final_norm.weight");
  EXPECT_EQ(megatron_key("word_embeddings_for_head.weight"), "head_copy.weight");
  EXPECT_EQ(megatron_key("language_model.pooler.dense.weight"), std::nullopt);
  EXPECT_EQ(megatron_key("decoder.layers.0.mlp.experts.linear_fc1.weight0"), std::nullopt);
  EXPECT_EQ(megatron_key("decoder.layers.0"), std::nullopt);
  EXPECT_TRUE(is_ignored_by_megatron("decoder.layers.0.mlp.linear_fc1._extra_state"));
}

}  // namespace
}  // namespace piton
