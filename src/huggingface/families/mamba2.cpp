
#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/families.h"

// Mamba-2 (Dao & Gu 2024, arXiv:2405.21060) in the form of Transformers: layers of state spaces
// alone, without attention and MLPs.
namespace piton {

namespace {

constexpr std::int64_t kAnyLength = std::int64_t{1} << 20;  // nothing depends on positions

ModelConfig mamba2_model(const HfConfig& config) {
  ModelConfig model = mamba2_facts();
  model.layers = config.size("num_hidden_layers", 64);
  model.hidden = model.head_size = config.size("hidden_size", 4096);
  model.ffn_hidden = 4 * model.hidden;
  model.vocabulary = config.size("vocab_size", 32768);
  model.max_positions = config.size("max_position_embeddings", kAnyLength);
  model.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  model.tied = config.flag("tie_word_embeddings", false);
  model.init_deviation = config.number("initializer_range", 0.1);
  leave_out_mlps(model);
  StateSpaceFacts& facts = *model.state_space;
  facts.heads = config.size("num_heads", 128);
  facts.head_size = config.size("head_dim", 64);
  facts.groups = config.size("n_groups", 8);
  facts.state_size = config.size("state_size", 128);
  facts.width = config.size("conv_kernel", 4);
  const std::int64_t values = config.size("expand", 2) * model.hidden;
  if (facts.values() != values) {
    config.refuse(
        "num_heads",
        fmt::format("heads of head_dim channels that make expand times hidden_size, {}", values));
  }
  if (config.flag("use_bias", false)) config.refuse("use_bias", "false");
  if (!config.flag("use_conv_bias", true)) config.refuse("use_conv_bias", "true");
  if (config.word("hidden_act", "silu") != "silu") config.refuse("hidden_act", "silu");
  refuse_bounds_of_steps(config);
  return model;
}

nlohmann::ordered_json mamba2_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = nlohmann::ordered_json::object();
  if (!model.state_space) return keys;
  const StateSpaceFacts& facts = *model.state_space;
  keys["num_hidden_layers"] = model.layers;
  keys["hidden_size"] = model.hidden;
  keys["vocab_size"] = model.vocabulary;
  if (model.max_positions != kAnyLength) keys["max_position_embeddings"] = model.max_positions;
  keys["layer_norm_epsilon"] = model.norm_eps;
  keys["tie_word_embeddings"] = model.tied;
  keys["initializer_range"] = model.init_deviation;
  keys["num_heads"] = facts.heads;
  keys["head_dim"] = facts.head_size;
  keys["n_groups"] = facts.groups;
  keys["state_size"] = facts.state_size;
  keys["conv_kernel"] = facts.width;
  keys["expand"] = facts.values() / model.hidden;
  keys["use_bias"] = false;
  keys["use_conv_bias"] = true;
  keys["hidden_act"] = "silu";
  return keys;
}

std::vector<HfPlace> mamba2_places(const ModelConfig& model) {
  std::vector<HfPart> parts = state_space_parts(*model.state_space, "mixer.");
  parts.push_back({"attention_norm.", "norm."});
  HfNames names = llama_names(std::move(parts));
  names.table = "backbone.embeddings.";
  names.layers = "backbone.layers.";
  names.final_norm = "backbone.norm_f.";
  return named_places(model, names);
}

}  // namespace

HfFamily hf_mamba2() {
  return {.model_types = {"mamba2"},
          .architectures = {"Mamba2ForCausalLM"},
          .model = mamba2_model,
          .places = mamba2_places,
          .keys = mamba2_keys,
          .optional_prefix = "",
          .ignored = {}};
}

}  // namespace piton
