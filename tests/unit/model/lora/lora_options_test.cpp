// Which linears the names of modules mean, and what is refused.
#include "model/lora/lora_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/families.h"
#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

std::set<std::string> first_layer(const char* model, const std::vector<std::string>& targets) {
  LoraOptions options;
  options.target_modules = targets;
  std::set<std::string> linears;
  for (const auto& [name, shape] : options.resolve(preset(model)).shapes) {
    if (name.starts_with("layers.0.")) linears.insert(name.substr(9));
  }
  return linears;
}

TEST(LoraOptions, ResolveTheNamesOfEveryProgram) {
  using Set = std::set<std::string>;
  EXPECT_EQ(first_layer("llama-tiny", {"q_proj", "v_proj"}),
            (Set{"attention.query", "attention.value"}));
  EXPECT_EQ(first_layer("llama-tiny", {"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"}),
            (Set{"attention.qkv", "attention.output", "mlp.gate_up", "mlp.down"}));
  EXPECT_EQ(
      first_layer("llama-tiny", {"query_key_value", "dense", "gate_proj", "up_proj", "down_proj"}),
      (Set{"attention.qkv", "attention.output", "mlp.gate", "mlp.up", "mlp.down"}));
  EXPECT_EQ(first_layer("gpt2-tiny", {"c_attn", "c_proj"}),
            (Set{"attention.qkv", "attention.output", "mlp.down"}));
  EXPECT_EQ(first_layer("gpt2-tiny", {"dense_h_to_4h", "dense_4h_to_h"}),
            (Set{"mlp.up", "mlp.down"}));
  EXPECT_EQ(first_layer("gpt2-tiny", {"all-linear"}),
            (Set{"attention.qkv", "attention.output", "mlp.up", "mlp.down"}));
  EXPECT_EQ(first_layer("llama-tiny", {"all-linear"}),
            (Set{"attention.query", "attention.key", "attention.value", "attention.output",
                 "mlp.gate", "mlp.up", "mlp.down"}));
}

// Those of layer 0 without the numbers of experts, each of which has to be there.
std::set<std::string> kinds_in_layer(const ModelConfig& model, const LoraOptions& options,
                                     std::int64_t layer) {
  std::map<std::string, std::int64_t> counts;
  const std::string begin = fmt::format("layers.{}.", layer);
  for (const auto& [name, shape] : options.resolve(model).shapes) {
    if (name.starts_with(begin)) ++counts[adapter_of_experts(name.substr(begin.size()))];
  }
  std::set<std::string> kinds;
  for (const auto& [name, count] : counts) {
    EXPECT_EQ(count, name.starts_with("mlp.experts.") ? model.experts->experts : 1) << name;
    kinds.insert(name);
  }
  return kinds;
}

std::set<std::string> kinds_of(const ModelConfig& model, const std::vector<std::string>& targets,
                               std::int64_t layer) {
  LoraOptions options;
  options.target_modules = targets;
  return kinds_in_layer(model, options, layer);
}

TEST(LoraOptions, GiveEveryExpertAnAdapter) {
  using Set = std::set<std::string>;
  const ModelConfig model = preset("mixtral-tiny");
  EXPECT_EQ(kinds_of(model, {"all-linear"}, 0),
            (Set{"attention.query", "attention.key", "attention.value", "attention.output",
                 "mlp.experts.gate", "mlp.experts.up", "mlp.experts.down"}));
  EXPECT_EQ(kinds_of(model, {"c_attn", "c_proj"}, 0),
            (Set{"attention.qkv", "attention.output", "mlp.experts.down"}));
  for (const char* name : {"linear_fc1", "gate_up_proj", "experts.gate_up_proj"})
    EXPECT_EQ(kinds_of(model, {name}, 1), Set{"mlp.experts.gate_up"}) << name;
  for (const char* name : {"w2", "down_proj", "linear_fc2", "experts.w2"})
    EXPECT_EQ(kinds_of(model, {name}, 1), Set{"mlp.experts.down"}) << name;
  LoraOptions options;
  options.target_modules = {"q_proj", "w1", "w2"};
  options.rank = 8;
  options.rank_pattern = {"layers.1.experts.w1=2", "w2=4"};
  const auto shapes = options.resolve(model).shapes;
  EXPECT_EQ(shapes.at("layers.1.mlp.experts.7.gate").rank, 2);
  EXPECT_EQ(shapes.at("layers.0.mlp.experts.7.gate").rank, 8);
  EXPECT_EQ(shapes.at("layers.0.mlp.experts.0.down").rank, 4);
}

// Layer 0 has no experts, the others have an MLP next to them.
TEST(LoraOptions, TellMlpsOfAModelWithExpertsApart) {
  using Set = std::set<std::string>;
  const ModelConfig model = preset("deepseek-v2-lite");
  EXPECT_EQ(kinds_of(model, {"gate_proj"}, 0), Set{"mlp.gate"});
  EXPECT_EQ(kinds_of(model, {"gate_proj"}, 1), (Set{"mlp.experts.gate", "mlp.shared.gate"}));
  EXPECT_EQ(kinds_of(model, {"mlp.gate_proj"}, 0), Set{"mlp.gate"});
  EXPECT_EQ(kinds_of(model, {"mlp.gate_proj"}, 1), Set{});
  EXPECT_EQ(kinds_of(model, {"experts.linear_fc1"}, 1), Set{"mlp.experts.gate_up"});
  EXPECT_EQ(kinds_of(model, {"shared_experts.linear_fc1"}, 1), Set{"mlp.shared.gate_up"});
  EXPECT_EQ(kinds_of(model, {"shared_expert.all-linear"}, 1),
            (Set{"mlp.shared.gate", "mlp.shared.up", "mlp.shared.down"}));
  const auto message = [&](const ModelConfig& of, const std::vector<std::string>& targets) {
    return message_of(Fault::kUsage, [&] { kinds_of(of, targets, 0); });
  };
  EXPECT_THAT(message(model, {"experts.q_proj"}),
              HasSubstr("this model has no experts.q_proj; wanted some of all-linear, "));
  EXPECT_THAT(message(model, {"experts.q_proj"}),
              HasSubstr("; experts.NAME, shared_experts.NAME or mlp.NAME for one kind of MLPs"));
  EXPECT_THAT(message(preset("mixtral-tiny"), {"shared_experts.w1"}),
              HasSubstr("this model has no shared_experts.w1"));
  EXPECT_THAT(message(preset("llama-tiny"), {"experts.w1"}), HasSubstr("has no experts.w1"));
  EXPECT_THAT(message(model, {"experts.gate_proj", "gate_proj", "linear_fc1"}),
              HasSubstr("two adapters; leave one of the names out"));
}

TEST(LoraOptions, RefuseLengthsOfExperts) {
  const auto message = [](auto&& edit) {
    LoraOptions options;
    options.target_modules = {"all-linear"};
    edit(options);
    return message_of(Fault::kUsage, [&] { options.resolve(preset("mixtral-tiny")); });
  };
  EXPECT_THAT(message([](LoraOptions& o) { o.use_dora = true; }),
              HasSubstr("--use-dora: not for adapters of experts, which --lora-target-modules "
                        "all-linear gives; leave it out, or name modules without experts"));
  LoraOptions others;
  others.target_modules = {"q_proj", "shared_experts.down_proj"};
  others.use_dora = true;
  others.dropout = 0.1;
  EXPECT_EQ(kinds_in_layer(preset("deepseek-v2-lite"), others, 1),
            (std::set<std::string>{"attention.query", "mlp.shared.down"}));
}

TEST(LoraOptions, NameEveryLinearOfLatentAttention) {
  using Set = std::set<std::string>;
  const ModelConfig lite = preset("deepseek-v2-lite");  // queries without small rows
  const Set mlp{"mlp.gate", "mlp.up", "mlp.down"};
  Set all{"attention.query", "attention.latent", "attention.key_value", "attention.output"};
  all.insert(mlp.begin(), mlp.end());
  EXPECT_EQ(kinds_of(lite, {"all-linear"}, 0), all);
  EXPECT_EQ(kinds_of(lite, {"q_proj", "kv_a_proj_with_mqa", "kv_b_proj"}, 1),
            (Set{"attention.query", "attention.latent", "attention.key_value"}));
  EXPECT_EQ(kinds_of(lite, {"linear_qkv", "linear_kvb"}, 1),
            (Set{"attention.query", "attention.latent", "attention.key_value"}));
  ModelConfig ranked = lite;
  ranked.latent->query_rank = 64;
  for (const std::vector<std::string>& names : {std::vector<std::string>{"q_a_proj", "q_b_proj"},
                                                {"linear_q_down_proj", "linear_q_up_proj"}})
    EXPECT_EQ(kinds_of(ranked, names, 0), (Set{"attention.query_down", "attention.query"}));
  EXPECT_EQ(
      kinds_of(ranked, {"linear_qkv", "linear_qb", "linear_kv_up_proj"}, 0),
      (Set{"attention.query_down", "attention.latent", "attention.query", "attention.key_value"}));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { kinds_of(ranked, {"q_proj"}, 0); }),
              HasSubstr("this model has no q_proj; wanted some of all-linear, "));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { kinds_of(lite, {"k_proj"}, 0); }),
              HasSubstr("this model has no k_proj"));
}

TEST(LoraOptions, ComputeExpertsWhoseAdaptersAreAlike) {
  const ModelConfig model = preset("mixtral-tiny");
  LoraOptions options;
  options.target_modules = {"w1", "w2"};
  const Adapters all = options.resolve(model);
  EXPECT_NO_THROW(check_computed(model, all, "adapter"));
  const auto message = [&](auto&& edit) {
    Adapters other = all;
    edit(other.shapes);
    return message_of(Fault::kData, [&] { check_computed(model, other, "adapter"); });
  };
  using Shapes = std::map<std::string, AdapterShape>;
  const std::string name = "layers.1.mlp.experts.3.gate";
  for (const std::string& text :
       {message([&](Shapes& shapes) { shapes.erase(name); }),
        message([&](Shapes& shapes) { shapes[name].rank = 3; }),
        message([&](Shapes& shapes) { shapes[name].scale = 3; }),
        message([&](Shapes& shapes) { shapes[name].magnitude = true; })}) {
    EXPECT_THAT(text, HasSubstr("adapter: has an adapter of layers.1.mlp.experts.0.gate, and not "
                                "of every expert of the layer with the same rank and scale"));
  }
}

// Every fourth layer has attention, the others have the gated delta rule.
ModelConfig with_states(const char* family) {
  ModelConfig model = preset("llama-tiny");
  model.family = family;
  model.delta.emplace();
  model.output_gate = true;
  return model;
}

std::set<std::string> all_of(const ModelConfig& model, const std::vector<std::string>& targets,
                             std::int64_t layer) {
  LoraOptions options;
  options.target_modules = targets;
  std::set<std::string> linears;
  const std::string begin = fmt::format("layers.{}.", layer);
  for (const auto& [name, shape] : options.resolve(model).shapes) {
    if (name.starts_with(begin)) linears.insert(name.substr(begin.size()));
  }
  return linears;
}

TEST(LoraOptions, GiveLayersWithStatesThoseOfTheirFamily) {
  using Set = std::set<std::string>;
  const ModelConfig dense = with_states("qwen3_5");
  EXPECT_EQ(all_of(dense, {"all-linear"}, 2),
            (Set{"delta.qkv", "delta.gate", "delta.strength", "delta.decay", "delta.output",
                 "mlp.gate", "mlp.up", "mlp.down"}));
  EXPECT_EQ(all_of(dense, {"all-linear"}, 3),
            (Set{"attention.query_gate", "attention.key", "attention.value", "attention.output",
                 "mlp.gate", "mlp.up", "mlp.down"}));
  EXPECT_EQ(all_of(dense, {"in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a", "out_proj"}, 0),
            (Set{"delta.qkv", "delta.gate", "delta.strength", "delta.decay", "delta.output"}));
  EXPECT_EQ(all_of(dense, {"linear_qkv", "in_proj", "linear_proj"}, 0), Set{"delta.input"});
  EXPECT_EQ(all_of(dense, {"linear_qkv", "in_proj", "linear_proj"}, 3),
            (Set{"attention.qkv_gate", "attention.output"}));
  ModelConfig experts = with_states("qwen3_next");
  experts.experts = {.experts = 4, .choices = 2};
  EXPECT_EQ(kinds_of(experts, {"all-linear"}, 0),
            (Set{"delta.qkv_gate", "delta.strength_decay", "delta.output", "mlp.experts.gate",
                 "mlp.experts.up", "mlp.experts.down"}));
  ModelConfig plain = with_states("llama");
  plain.output_gate = false;
  EXPECT_EQ(all_of(plain, {"q_proj", "in_proj_qkvz", "in_proj_ba"}, 3), Set{"attention.query"});
  EXPECT_EQ(all_of(plain, {"q_proj", "in_proj_qkvz", "in_proj_ba"}, 1),
            (Set{"delta.qkv_gate", "delta.strength_decay"}));
}

TEST(LoraOptions, RefuseNamesThatGiveNothingInLayersWithStates) {
  const auto message = [](const ModelConfig& model, std::vector<std::string> targets, auto&& edit) {
    LoraOptions options;
    options.target_modules = std::move(targets);
    edit(options);
    return message_of(Fault::kUsage, [&] { options.resolve(model); });
  };
  using Options = LoraOptions;
  const ModelConfig model = with_states("qwen3_5");
  EXPECT_THAT(message(model, {"out_proj", "q_proj"},
                      [](Options& o) {
                        o.layers = {0, 2};
                      }),
              HasSubstr("--lora-target-modules: got q_proj, which none of the layers 0, 2 has"));
  EXPECT_THAT(
      message(model, {"all-linear"}, [](Options& o) { o.rank_pattern = {"layers.0.q_proj=4"}; }),
      HasSubstr("got layers.0.q_proj=4, which names no adapter of this run"));
  EXPECT_THAT(message(model, {"in_proj_qkvz", "in_proj_z"}, [](Options&) {}),
              HasSubstr("gives delta.gate two adapters"));
  EXPECT_THAT(message(model, {"linear_qkv", "q_proj"}, [](Options&) {}), HasSubstr("two adapters"));
  EXPECT_THAT(message(model, {"conv1d"}, [](Options&) {}),
              HasSubstr("this model has no conv1d; wanted some of W_pack, all-linear"));
  EXPECT_THAT(message(preset("llama-tiny"), {"in_proj_qkv"}, [](Options&) {}),
              HasSubstr("this model has no in_proj_qkv"));
}

TEST(LoraOptions, GiveEveryLayerTheRankAndTheScale) {
  LoraOptions options;
  EXPECT_FALSE(options.resolve(preset("llama-tiny")).given());
  options.target_modules = {"q_proj"};
  options.rank = 8;
  options.alpha = 12;
  const ModelConfig model = preset("llama-tiny");
  const Adapters plain = options.resolve(model);
  EXPECT_EQ(static_cast<std::int64_t>(plain.shapes.size()), model.layers);
  for (const auto& [name, shape] : plain.shapes) EXPECT_EQ(shape, (AdapterShape{8, 1.5}));
  options.rank_stabilized = true;
  EXPECT_EQ(options.resolve(model).shapes.begin()->second.scale, 12 / std::sqrt(8.0));
  options.use_dora = true;
  EXPECT_TRUE(options.resolve(model).shapes.begin()->second.magnitude);
}

TEST(LoraOptions, GiveSomeAdaptersOtherRanksAndScales) {
  LoraOptions options;
  options.target_modules = {"q_proj", "down_proj"};
  options.rank = 8;
  options.alpha = 16;
  options.layers = {1, 3};
  options.rank_pattern = {"layers.3.q_proj=2", "q_proj=4"};
  options.alpha_pattern = {"linear_fc2=2.5"};
  const std::map<std::string, AdapterShape> wanted = {{"layers.1.attention.query", {4, 4}},
                                                      {"layers.1.mlp.down", {8, 2.5 / 8}},
                                                      {"layers.3.attention.query", {2, 8}},
                                                      {"layers.3.mlp.down", {8, 2.5 / 8}}};
  EXPECT_EQ(options.resolve(preset("llama-tiny")).shapes, wanted);
  const auto message = [&](auto&& edit) {
    LoraOptions other = options;
    edit(other);
    return message_of(Fault::kUsage, [&] { other.resolve(preset("llama-tiny")); });
  };
  using Options = LoraOptions;
  for (const char* text : {"q_proj", "q_proj=", "q_proj=x", "layers.q_proj=4", "layers.1=4"}) {
    EXPECT_THAT(message([&](Options& o) { o.rank_pattern = {text}; }),
                HasSubstr(fmt::format("--lora-rank-pattern: got {}, wanted ", text)));
  }
  EXPECT_THAT(message([](Options& o) { o.rank_pattern = {"q_proj=0"}; }),
              HasSubstr("--lora-rank-pattern: got 0, wanted 1 to"));
  EXPECT_THAT(message([](Options& o) { o.rank_pattern = {"layers.0.q_proj=4"}; }),
              HasSubstr("got layers.0.q_proj=4, which names no adapter of this run"));
  EXPECT_THAT(message([](Options& o) { o.alpha_pattern = {"v_proj=4"}; }),
              HasSubstr("got v_proj=4, which names no adapter of this run"));
  EXPECT_THAT(message([](Options& o) { o.layers = {4}; }),
              HasSubstr("--lora-layers-to-transform: got 4, wanted 0 to 3"));
}

TEST(LoraOptions, NameTheTensorsThatAreTrainedInFull) {
  LoraOptions options;
  options.target_modules = {"q_proj"};
  options.modules_to_save = {"word_embeddings", "lm_head.lm_head", "final_layernorm"};
  EXPECT_EQ(options.resolve(preset("llama-tiny")).trained,
            (std::set<std::string>{"embedding.token.weight", "final_norm.weight", "head.weight"}));
  options.modules_to_save = {"norms"};
  const auto norms = options.resolve(preset("gpt2-tiny")).trained;
  EXPECT_EQ(static_cast<std::int64_t>(norms.size()), 4 * preset("gpt2-tiny").layers + 2);
  EXPECT_TRUE(norms.contains("layers.0.mlp_norm.bias"));
}

TEST(LoraOptions, RefuseWhatTheModelDoesNotHave) {
  const auto message = [](const char* model, auto&& edit) {
    LoraOptions options;
    options.target_modules = {"dense"};
    edit(options);
    return message_of(Fault::kUsage, [&] { options.resolve(preset(model)); });
  };
  using Options = LoraOptions;
  EXPECT_THAT(message("gpt2-tiny", [](Options& o) { o.target_modules = {"gate_proj"}; }),
              testing::AllOf(HasSubstr("--lora-target-modules: this model has no gate_proj"),
                             HasSubstr("c_attn, c_fc, c_proj")));
  EXPECT_THAT(message("llama-tiny",
                      [](Options& o) {
                        o.target_modules = {"q_proj", "linear_qkv"};
                      }),
              HasSubstr("two adapters"));
  EXPECT_THAT(message("llama-tiny", [](Options& o) { o.rank = 0; }),
              HasSubstr("--lora-r: got 0, wanted 1"));
  EXPECT_THAT(message("llama-tiny", [](Options& o) { o.alpha = -1; }),
              HasSubstr("--lora-alpha: got -1"));
  EXPECT_THAT(message("llama-tiny", [](Options& o) { o.dropout = 1; }),
              HasSubstr("--lora-dropout: got 1"));
  EXPECT_THAT(message("llama-tiny", [](Options& o) { o.adapter_name = "../a"; }),
              HasSubstr("--lora-adapter-name"));
  EXPECT_THAT(message("gpt2-tiny", [](Options& o) { o.modules_to_save = {"lm_head"}; }),
              HasSubstr("give word_embeddings"));
  EXPECT_THAT(message("gpt2-tiny", [](Options& o) { o.modules_to_save = {"dense"}; }),
              HasSubstr("--lora-modules-to-save: got dense, wanted some of"));
  EXPECT_THAT(message("gpt2-tiny",
                      [](Options& o) {
                        o.target_modules.clear();
                        o.modules_to_save = {"norms"};
                      }),
              HasSubstr("needs --lora-target-modules"));
}

}  // namespace
}  // namespace piton
