// Which parameters an adapter trains, and the two lists that are loaded.
#include "nn/adapters.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

Parameter named(const std::string& name, const std::vector<std::string>& pieces) {
  Parameter parameter;
  parameter.name = name;
  for (const std::string& piece : pieces) parameter.pieces.push_back({.name = piece});
  return parameter;
}

TEST(Adapters, TrainThemselvesAndWhatTheyName) {
  ParameterList list;
  Parameter& qkv =
      list.add(named("layers.0.attention.qkv.weight",
                     {"layers.0.attention.query.weight", "layers.0.attention.key.weight",
                      "layers.0.attention.value.weight"}));
  Parameter& a =
      list.add(named("layers.0.attention.qkv.lora_a", {"layers.0.attention.qkv.lora_a"}));
  Parameter& b =
      list.add(named("layers.0.attention.qkv.lora_b", {"layers.0.attention.query.lora_b"}));
  Parameter& norm = list.add(named("final_norm.weight", {"final_norm.weight"}));
  Adapters adapters;
  adapters.shapes["layers.0.attention.qkv"] = {.rank = 2, .scale = 1};
  adapters.trained = {"final_norm.weight", "layers.0.attention.key.weight"};
  adapters.freeze(list.all());
  EXPECT_FALSE(qkv.trainable);  // only one of its pieces is named
  Parameter& magnitude = list.add(
      named("layers.0.attention.qkv.lora_magnitude", {"layers.0.attention.query.lora_magnitude"}));
  adapters.freeze(list.all());
  EXPECT_TRUE(a.trainable && b.trainable && norm.trainable && magnitude.trainable);
  using List = std::vector<Parameter*>;
  EXPECT_EQ(base_parameters(list.all()), (List{&qkv, &norm}));
  EXPECT_EQ(adapter_parameters(list.all()), (List{&a, &b, &magnitude}));
  EXPECT_EQ(magnitude_parameters(list.all()), List{&magnitude});
  EXPECT_EQ(trained_parameters(list.all(), adapters), (List{&a, &b, &norm, &magnitude}));
  Adapters().freeze(list.all());
  EXPECT_TRUE(qkv.trainable);
  EXPECT_EQ(adapters.find("layers.0.attention.query"), nullptr);
}

TEST(Adapters, OfSeveralMatricesHaveANameOfTheSet) {
  using List = std::vector<std::string>;
  EXPECT_EQ(matrices_of("layers.3.attention.query_gate"),
            (List{"layers.3.attention.query", "layers.3.attention.gate"}));
  EXPECT_EQ(matrices_of("layers.3.delta.input").size(), 6U);
  EXPECT_EQ(matrices_of("layers.3.mlp.gate"), List{"layers.3.mlp.gate"});
  EXPECT_EQ(adapter_of({"layers.3.attention.gate", "layers.3.attention.query"}),
            "layers.3.attention.query_gate");
  EXPECT_EQ(adapter_of({"layers.3.delta.key", "layers.3.delta.value", "layers.3.delta.query"}),
            "layers.3.delta.qkv");
  EXPECT_EQ(adapter_of({"layers.3.mlp.down"}), "layers.3.mlp.down");
  // Matrices of two layers, one twice, and some that share none.
  EXPECT_EQ(adapter_of({"layers.3.mlp.gate", "layers.2.mlp.up"}), std::nullopt);
  EXPECT_EQ(adapter_of({"layers.3.mlp.gate", "layers.3.mlp.gate"}), std::nullopt);
  EXPECT_EQ(adapter_of({"layers.3.attention.query", "layers.3.attention.key"}), std::nullopt);
  for (const char* set :
       {"attention.qkv", "attention.query_gate", "attention.qkv_gate", "mlp.gate_up",
        "mlp.shared.gate_up", "mlp.experts.gate_up", "mlp.experts.12.gate_up", "delta.qkv",
        "delta.qkv_gate", "delta.strength_decay", "delta.input"})
    EXPECT_EQ(adapter_of(matrices_of(std::string("layers.0.") + set)),
              std::string("layers.0.") + set);
}

TEST(Adapters, OfExpertsAreNamedWithAndWithoutTheirNumber) {
  EXPECT_EQ(adapter_of_expert("layers.3.mlp.experts.down", 7), "layers.3.mlp.experts.7.down");
  EXPECT_EQ(adapter_of_experts("layers.3.mlp.experts.17.gate_up"), "layers.3.mlp.experts.gate_up");
  EXPECT_EQ(adapter_of_experts("layers.3.mlp.experts.down"), "layers.3.mlp.experts.down");
  EXPECT_EQ(adapter_of_experts("layers.3.mlp.shared.down"), "layers.3.mlp.shared.down");
  EXPECT_EQ(adapter_of_expert("layers.3.mlp.down", 7), "layers.3.mlp.down");
  EXPECT_TRUE(is_expert_adapter("layers.3.mlp.experts.7.down"));
  EXPECT_FALSE(is_expert_adapter("layers.3.mlp.experts.down"));
  EXPECT_FALSE(is_expert_adapter("layers.3.mlp.down"));
  // Of two experts, which share no A.
  EXPECT_EQ(adapter_of({"layers.3.mlp.experts.1.gate", "layers.3.mlp.experts.2.up"}), std::nullopt);
}

}  // namespace
}  // namespace piton
