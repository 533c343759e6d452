#include "model/lora_targets.h"

#include <charconv>
#include <initializer_list>
#include <string_view>

#include "base/error.h"
#include "model/label_head.h"

namespace piton {
namespace {

using Names = std::vector<std::string>;
using Targets = std::map<std::string, Names>;

// As PEFT finds them: every module whose name ends so.
Targets targets_of_encoder(const ModelConfig& config) {
  Targets targets{{"query", {"attention.query"}},
                  {"key", {"attention.key"}},
                  {"value", {"attention.value"}},
                  {"attention.output.dense", {"attention.output"}},
                  {"intermediate.dense", {"mlp.up"}},
                  {"output.dense", {"attention.output", "mlp.down"}},
                  {"dense", {"attention.output", "mlp.up", "mlp.down"}},
                  {"all-linear",
                   {"attention.query", "attention.key", "attention.value", "attention.output",
                    "mlp.up", "mlp.down"}}};
  if (head_has_pooler(config)) return targets;
  targets["pooler.dense"] = {kPooler};
  for (const char* name : {"dense", "all-linear"}) targets[name].emplace_back(kPooler);
  return targets;
}

void append(Names& names, const Names& more) {
  names.insert(names.end(), more.begin(), more.end());
}

// The linears before the output, as the family has them in Hugging Face's form.
Names inputs_of_delta(const ModelConfig& config) {
  if (config.family == "qwen3_next") return {"delta.qkv_gate", "delta.strength_decay"};
  return {"delta.qkv", "delta.gate", "delta.strength", "delta.decay"};
}

}  // namespace

Targets lora_targets(const ModelConfig& config) {
  if (config.encoder) return targets_of_encoder(config);
  Targets targets;
  const auto add = [&](std::initializer_list<const char*> names, Names linears) {
    if (config.experts)
      std::erase_if(linears, [](const std::string& one) { return one.starts_with("mlp."); });
    if (config.latent) {
      std::erase_if(linears, [](const std::string& one) {
        return one.starts_with("attention.") && one != "attention.output";
      });
    }
    for (const char* name : names) {
      if (!linears.empty()) targets[name] = linears;
    }
  };
  const std::string query = config.output_gate ? "attention.query_gate" : "attention.query";
  const std::string qkv = config.output_gate ? "attention.qkv_gate" : "attention.qkv";
  const std::string up = config.gated ? "mlp.gate_up" : "mlp.up";
  add({"q_proj"}, {query});
  add({"k_proj"}, {"attention.key"});
  add({"v_proj"}, {"attention.value"});
  add({"query_key_value", "linear_qkv", "qkv_proj", "c_attn", "W_pack", "wqkv"}, {qkv});
  add({"o_proj", "dense", "linear_proj", "out_proj", "wo"}, {"attention.output"});
  if (config.gated) {
    add({"gate_proj", "w1"}, {"mlp.gate"});
    add({"gate_up_proj"}, {"mlp.gate_up"});
  }
  add({"up_proj", "w3", "c_fc"}, {"mlp.up"});
  add({"linear_fc1", "dense_h_to_4h"}, {up});
  add({"down_proj", "linear_fc2", "dense_4h_to_h", "w2"}, {"mlp.down"});
  add({"c_proj"}, {"attention.output", "mlp.down"});
  const bool fused = config.family == "gpt2" || config.family == "bloom";
  Names all = fused ? Names{qkv} : Names{query, "attention.key", "attention.value"};
  append(all, {"attention.output", "mlp.up", "mlp.down"});
  if (config.gated) all.emplace_back("mlp.gate");
  if (config.state_layers() > 0) {
    add({"in_proj_qkv"}, {"delta.qkv"});
    add({"in_proj_qkvz"}, {"delta.qkv_gate"});
    add({"in_proj_z"}, {"delta.gate"});
    add({"in_proj_b"}, {"delta.strength"});
    add({"in_proj_a"}, {"delta.decay"});
    add({"in_proj_ba"}, {"delta.strength_decay"});
    add({"in_proj"}, {"delta.input"});
    add({"out_proj"}, {"delta.output"});
    append(all, inputs_of_delta(config));
    all.emplace_back("delta.output");
  }
  add({"all-linear"}, all);
  return targets;
}

bool layer_has(const ModelConfig& config, std::int64_t layer, const std::string& adapter) {
  const auto is_in = [&](std::string_view block) { return adapter.starts_with(block); };
  if (is_in("delta.")) return config.has_states(layer);
  if (is_in("attention.")) {
    return !config.has_states(layer) && (!config.latent || adapter == "attention.output");
  }
  return is_in("mlp.") && !config.has_experts(layer);
}

void check_computed(const ModelConfig& config, const Adapters& adapters, const std::string& where) {
  constexpr std::string_view kLayers = "layers.";
  for (const auto& [name, shape] : adapters.shapes) {
    if (name == kPooler) continue;
    PITON_ASSERT(name.starts_with(kLayers), "{}", name);
    const std::size_t end = name.find('.', kLayers.size());
    std::int64_t layer = 0;
    std::from_chars(name.data() + kLayers.size(), name.data() + end, layer);
    if (layer_has(config, layer, name.substr(end + 1))) continue;
    throw Error(Fault::kData,
                "{}: has an adapter of {}, which can only be merged into the model; give what "
                "piton convert --load BASE --lora-load {} --to hf writes",
                where, name, where);
  }
}

}  // namespace piton
