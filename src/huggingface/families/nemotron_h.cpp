#include "base/json.h"
#include "huggingface/families/families.h"
#include "huggingface/families/llama_like.h"
#include "model/canonical_tensors.h"
#include "model/families.h"

// Nemotron-H (NVIDIA 2025, arXiv:2504.03624): layers of Mamba-2, of attention without positions, of
// MLPs without a gate whose activation is the square of ReLU, and of experts as DeepSeek-V3 has
// them. In the files each of these is a layer with a norm; here an MLP or experts are of the layer
// before. Transformers cuts off steps below "time_step_min", which Megatron-core, NVIDIA's own code
// and Piton do not.
namespace piton {
namespace {

// The letters of --hybrid-override-pattern; NVIDIA's files have them as they are.
std::string letters_of(const HfConfig& config) {
  std::string letters;
  std::string key = "layers_block_type";
  if (!config.has(key)) key = "layer_types";
  for (const std::string& type : config.words(key)) {
    if (type == "mamba" || type == "linear_attention") {
      letters += 'M';
    } else if (type == "attention" || type == "full_attention") {
      letters += '*';
    } else if (type == "mlp") {
      letters += '-';
    } else if (type == "moe") {
      letters += 'E';
    } else {
      config.refuse(key, "mamba, attention, mlp or moe in each layer");
    }
  }
  return letters.empty() ? config.word("hybrid_override_pattern") : letters;
}

void set_experts(const HfConfig& config, ModelConfig& model) {
  if (config.has("moe_latent_size")) config.refuse("moe_latent_size", "null");
  ExpertFacts facts{.experts = config.size("n_routed_experts", 8),
                    .choices = config.size("num_experts_per_tok", 2),
                    .normalized = config.flag("norm_topk_prob", true),
                    .score = ScoreKind::kSigmoid,
                    .weight_factor = config.number("routed_scaling_factor", 1.0),
                    .choice_bias = true,
                    .groups = {.count = config.size("n_group", 1),
                               .chosen = config.size("topk_group", 1),
                               .largest = 2}};
  if (!facts.groups.divide()) facts.groups = {};
  const std::int64_t width = config.size("moe_intermediate_size", 7688);
  facts.ffn_hidden = width == model.ffn_hidden ? 0 : width;
  facts.shared_ffn_hidden = config.size("moe_shared_expert_intermediate_size", 7688);
  model.experts = facts;
}

void set_state_space(const HfConfig& config, ModelConfig& model) {
  StateSpaceFacts& facts = *model.state_space;
  facts.heads = config.size("mamba_num_heads", 128);
  facts.head_size = config.size("mamba_head_dim", 64);
  facts.groups = config.size("n_groups", 8);
  facts.state_size = config.size("ssm_state_size", 128);
  facts.width = config.size("conv_kernel", 4);
  for (const char* key : {"use_bias", "mamba_proj_bias", "mlp_bias", "attention_bias"})
    if (config.flag(key, false)) config.refuse(key, "false");
  if (!config.flag("use_conv_bias", true)) config.refuse("use_conv_bias", "true");
  if (config.word("mamba_hidden_act", "silu") != "silu") config.refuse("mamba_hidden_act", "silu");
  refuse_bounds_of_steps(config);
}

ModelConfig nemotron_h_model(const HfConfig& config) {
  ModelConfig model = llama_facts();
  model.positions = PositionKind::kNone;
  model.rotary_base = ModelConfig{}.rotary_base;
  model.gated = false;
  model.activation = hf_activation(config, "mlp_hidden_act", "relu2");
  model.hidden = config.size("hidden_size", 4096);
  model.ffn_hidden = config.size("intermediate_size", 21504);
  model.heads = config.size("num_attention_heads", 32);
  model.groups = config.size("num_key_value_heads", config.size("num_attention_heads", 8));
  model.head_size = config.size("head_dim", 128);
  model.vocabulary = config.size("vocab_size", 131072);
  model.max_positions = config.size("max_position_embeddings", 4096);
  model.norm_eps = config.number("layer_norm_epsilon", 1e-5);
  model.tied = config.flag("tie_word_embeddings", false);
  model.init_deviation = config.number("initializer_range", 0.02);
  model.attention_dropout = config.number("attention_dropout", 0.0);
  model.hidden_dropout = config.number("hidden_dropout", 0.0);
  if (config.has("sliding_window")) config.refuse("sliding_window", "null");
  StateSpaceOptions layers;
  layers.pattern = letters_of(config);
  if (layers.pattern->find('E') != std::string::npos) set_experts(config, model);
  layers.set_layers(model);
  layers.set_experts(model);
  set_state_space(config, model);
  return model;
}

nlohmann::ordered_json nemotron_h_keys(const ModelConfig& model) {
  nlohmann::ordered_json keys = nlohmann::ordered_json::object();
  if (!model.state_space) return keys;
  const StateSpaceFacts& facts = *model.state_space;
  nlohmann::ordered_json types = nlohmann::ordered_json::array();
  const StateSpaceOptions layers = StateSpaceOptions::of(model);
  for (const char letter : *layers.pattern) {
    types.push_back(letter == 'M'   ? "linear_attention"
                    : letter == '*' ? "full_attention"
                    : letter == '-' ? "mlp"
                                    : "moe");
  }
  keys["layers_block_type"] = std::move(types);
  keys["hidden_size"] = model.hidden;
  keys["intermediate_size"] = model.ffn_hidden;
  keys["mlp_hidden_act"] = hf_activation_name(model.activation);
  keys["num_attention_heads"] = model.heads;
  keys["num_key_value_heads"] = model.groups;
  keys["head_dim"] = model.head_size;
  keys["vocab_size"] = model.vocabulary;
  keys["max_position_embeddings"] = model.max_positions;
  keys["layer_norm_epsilon"] = model.norm_eps;
  keys["tie_word_embeddings"] = model.tied;
  keys["initializer_range"] = model.init_deviation;
  keys["attention_dropout"] = model.attention_dropout;
  keys["hidden_dropout"] = model.hidden_dropout;
  keys["mamba_num_heads"] = facts.heads;
  keys["mamba_head_dim"] = facts.head_size;
  keys["n_groups"] = facts.groups;
  keys["ssm_state_size"] = facts.state_size;
  keys["conv_kernel"] = facts.width;
  keys["use_conv_bias"] = true;
  keys["mamba_hidden_act"] = "silu";
  if (!model.experts) return keys;
  const ExpertFacts& experts = *model.experts;
  keys["n_routed_experts"] = experts.experts;
  keys["num_experts_per_tok"] = experts.choices;
  keys["norm_topk_prob"] = experts.normalized;
  keys["routed_scaling_factor"] = experts.weight_factor;
  keys["n_group"] = experts.groups.count;
  keys["topk_group"] = experts.groups.chosen;
  keys["moe_intermediate_size"] = model.expert_ffn_hidden();
  keys["moe_shared_expert_intermediate_size"] = experts.shared_ffn_hidden;
  keys["n_shared_experts"] = 1;
  return keys;
}

std::vector<HfPlace> nemotron_h_places(const ModelConfig& model) {
  std::vector<HfPart> parts = state_space_parts(*model.state_space, "mixer.");
  for (const HfPart& part :
       std::vector<HfPart>{{"attention_norm.", "norm."},
                           {"mlp_norm.", "norm."},
                           {"attention.query.", "mixer.q_proj."},
                           {"attention.key.", "mixer.k_proj."},
                           {"attention.value.", "mixer.v_proj."},
                           {"attention.output.", "mixer.o_proj."},
                           {"mlp.up.", "mixer.up_proj."},
                           {"mlp.down.", "mixer.down_proj."},
                           {"mlp.router.weight", "mixer.gate."},
                           {"mlp.router.bias", "mixer.gate.e_score_correction_"},
                           {"mlp.shared.up.", "mixer.shared_experts.up_proj."},
                           {"mlp.shared.down.", "mixer.shared_experts.down_proj."},
                           {"mlp.experts.E.up.", "mixer.experts.E.up_proj."},
                           {"mlp.experts.E.down.", "mixer.experts.E.down_proj."}})
    parts.push_back(part);
  HfNames names = llama_names(std::move(parts));
  names.table = "backbone.embeddings.";
  names.layers = "backbone.layers.";
  names.final_norm = "backbone.norm_f.";
  std::vector<HfPlace> places = named_places(model, names);
  const std::vector<PatternLetter> letters = pattern_letters(model);
  const std::string before = "layers.";
  for (HfPlace& place : places) {
    if (!place.canonical.starts_with(before)) continue;
    const std::size_t end = place.canonical.find('.', before.size());
    const std::string layer = place.canonical.substr(before.size(), end - before.size());
    place.name =
        fmt::format("{}{}{}", names.layers,
                    letter_number(letters, std::stoll(layer), place.canonical.substr(end + 1)),
                    place.name.substr(names.layers.size() + layer.size()));
  }
  return places;
}

}  // namespace

HfFamily hf_nemotron_h() {
  return {.model_types = {"nemotron_h"},
          .architectures = {"NemotronHForCausalLM"},
          .model = nemotron_h_model,
          .places = nemotron_h_places,
          .keys = nemotron_h_keys,
          .optional_prefix = "",
          .ignored = {},
          .ignored_beginnings = {"mtp."},
          .file_beginning = "backbone.",
          .module_beginning = "model."};
}

}  // namespace piton
