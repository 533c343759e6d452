#include "model/lora/lora_targets.h"

#include <algorithm>
#include <initializer_list>
#include <map>

#include "model/label_head.h"

namespace piton {
namespace {

using Names = std::vector<std::string>;
using Targets = std::map<std::string, Names>;

constexpr std::string_view kExperts = "mlp.experts.";
constexpr std::string_view kShared = "mlp.shared.";
constexpr std::string_view kMlp = "mlp.";

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
  targets["pooler.dense"] = {kPoolerAdapter};
  for (const char* name : {"dense", "all-linear"}) targets[name].emplace_back(kPoolerAdapter);
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

// With those of every MLP of a model with experts in the place of "mlp.up".
Names of_all_mlps(const ModelConfig& config, const Names& linears) {
  if (!config.experts) return linears;
  Names all;
  for (const std::string& linear : linears) {
    if (!linear.starts_with(kMlp)) {
      all.push_back(linear);
      continue;
    }
    const std::string matrix = linear.substr(kMlp.size());
    if (config.expert_layers() < config.layers) all.push_back(linear);
    if (config.experts->shared_ffn_hidden != 0) all.push_back(std::string(kShared) + matrix);
    all.push_back(std::string(kExperts) + matrix);
  }
  return all;
}

class TargetTable {
 public:
  explicit TargetTable(const ModelConfig& config) : config_(config) {}

  void add(std::initializer_list<const char*> names, const Names& linears) {
    for (const char* name : names) targets_[name] = of_all_mlps(config_, linears);
  }
  // The same, and a part of all-linear.
  void add_linear(std::initializer_list<const char*> names, const Names& linears) {
    add(names, linears);
    append(all_, linears);
  }
  void append_to_all(const Names& linears) { append(all_, linears); }
  Targets finished() {
    add({"all-linear"}, all_);
    return std::move(targets_);
  }

 private:
  const ModelConfig& config_;
  Targets targets_;
  Names all_;
};

void add_latent_attention(const ModelConfig& config, TargetTable& table) {
  const bool ranked = config.latent->query_rank != 0;
  if (ranked) {
    table.add_linear({"q_a_proj", "linear_q_down_proj"}, {"attention.query_down"});
    table.add_linear({"q_b_proj", "linear_q_up_proj", "linear_qb"}, {"attention.query"});
  } else {
    table.add_linear({"q_proj", "linear_q_proj"}, {"attention.query"});
  }
  table.add_linear({"kv_a_proj_with_mqa", "linear_kv_down_proj"}, {"attention.latent"});
  table.add_linear({"kv_b_proj", "linear_kv_up_proj", "linear_kvb"}, {"attention.key_value"});
  table.add({"linear_qkv"},
            {ranked ? "attention.query_down" : "attention.query", "attention.latent"});
}

void add_attention(const ModelConfig& config, TargetTable& table) {
  const std::string query = config.output_gate ? "attention.query_gate" : "attention.query";
  const std::string qkv = config.output_gate ? "attention.qkv_gate" : "attention.qkv";
  table.add({"q_proj"}, {query});
  table.add({"k_proj"}, {"attention.key"});
  table.add({"v_proj"}, {"attention.value"});
  table.add({"query_key_value", "linear_qkv", "qkv_proj", "c_attn", "W_pack", "wqkv"}, {qkv});
  const bool fused = config.family == "gpt2" || config.family == "bloom";
  table.append_to_all(fused ? Names{qkv} : Names{query, "attention.key", "attention.value"});
}

void add_mlp(const ModelConfig& config, TargetTable& table) {
  if (config.gated) {
    table.add_linear({"gate_proj", "w1"}, {"mlp.gate"});
    table.add({"gate_up_proj"}, {"mlp.gate_up"});
  }
  table.add_linear({"up_proj", "w3", "c_fc"}, {"mlp.up"});
  table.add({"linear_fc1", "dense_h_to_4h"}, {config.gated ? "mlp.gate_up" : "mlp.up"});
  table.add_linear({"down_proj", "linear_fc2", "dense_4h_to_h", "w2"}, {"mlp.down"});
  table.add({"c_proj"}, {"attention.output", "mlp.down"});
}

void add_delta(const ModelConfig& config, TargetTable& table) {
  table.add({"in_proj_qkv"}, {"delta.qkv"});
  table.add({"in_proj_qkvz"}, {"delta.qkv_gate"});
  table.add({"in_proj_z"}, {"delta.gate"});
  table.add({"in_proj_b"}, {"delta.strength"});
  table.add({"in_proj_a"}, {"delta.decay"});
  table.add({"in_proj_ba"}, {"delta.strength_decay"});
  table.add({"in_proj"}, {"delta.input"});
  table.add_linear({"out_proj"}, {"delta.output"});
  table.append_to_all(inputs_of_delta(config));
}

void add_states(const ModelConfig& config, TargetTable& table) {
  if (config.delta) return add_delta(config, table);
  if (config.short_convolution) {  // whose attention has an out_proj too
    table.add({"in_proj"}, {"short_conv.input"});
    table.add({"out_proj"}, {"attention.output", "short_conv.output"});
    return table.append_to_all({"short_conv.input", "short_conv.output"});
  }
  table.add_linear({"in_proj"}, {"mamba.input"});
  table.add_linear({"out_proj"}, {"mamba.output"});
}

Targets lora_targets(const ModelConfig& config) {
  if (config.encoder) return targets_of_encoder(config);
  TargetTable table(config);
  config.latent ? add_latent_attention(config, table) : add_attention(config, table);
  table.add_linear({"o_proj", "dense", "linear_proj", "out_proj", "wo"}, {"attention.output"});
  add_mlp(config, table);
  if (config.state_layers() > 0) add_states(config, table);
  return table.finished();
}

// What is before the name of a module, and the adapters that are left of those of the name.
struct Kind {
  std::string_view word;
  std::string_view block;
};

constexpr Kind kKinds[] = {{"experts.", kExperts},
                           {"shared_experts.", kShared},
                           {"shared_expert.", kShared},
                           {"mlp.", kMlp}};

bool is_in_block(const std::string& adapter, std::string_view block) {
  const std::string_view rest = std::string_view(adapter).substr(adapter.rfind('.') + 1);
  return adapter.size() == block.size() + rest.size() && adapter.starts_with(block);
}

}  // namespace

std::vector<std::string> lora_target(const ModelConfig& config, const std::string& name) {
  const Targets targets = lora_targets(config);
  const auto found = targets.find(name);
  if (found != targets.end()) return found->second;
  for (const Kind& kind : kKinds) {
    if (!config.experts || !name.starts_with(kind.word)) continue;
    const auto module = targets.find(name.substr(kind.word.size()));
    if (module == targets.end()) continue;
    Names linears = module->second;
    std::erase_if(linears, [&](const auto& one) { return !is_in_block(one, kind.block); });
    return linears;
  }
  return {};
}

std::vector<std::string> lora_target_names(const ModelConfig& config) {
  Names names;
  for (const auto& [name, linears] : lora_targets(config)) names.push_back(name);
  return names;
}

bool layer_has_adapter(const ModelConfig& config, std::int64_t layer, const std::string& adapter) {
  for (const char* states : {"delta.", "mamba.", "short_conv."})
    if (adapter.starts_with(states)) return config.has_states(layer);
  if (adapter.starts_with("attention."))
    return config.has_mixer(layer) && !config.has_states(layer);
  const bool experts = config.has_experts(layer);
  if (is_of_experts(adapter)) return experts;
  if (adapter.starts_with(kShared)) return experts && config.experts->shared_ffn_hidden != 0;
  return adapter.starts_with(kMlp) && config.has_mlp(layer) && !experts;
}

bool is_of_experts(std::string_view adapter) { return adapter.starts_with(kExperts); }

}  // namespace piton
