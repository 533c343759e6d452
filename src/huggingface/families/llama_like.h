// Shared by LLaMA and the families derived from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "huggingface/families/hf_family.h"
#include "huggingface/families/names.h"

namespace piton {

// What the configuration class of a family in Transformers takes where config.json lacks a key. A
// key that is null counts as there.
struct LlamaLikeDefaults {
  double norm_eps = 1e-6;
  std::int64_t groups = 0;                          // 0: as many as heads
  std::int64_t head_size = 0;                       // 0: the width divided by the heads
  const char* longest = "max_position_embeddings";  // the key of the longest sequence
  const char* ffn_hidden = "intermediate_size";     // the key of the width inside the MLP
  double rotary_base = 10000;
  double rotary_share = 1;  // of each head's channels
};

// Reads sizes, norm, rotary positions, activation and dropout from `config`; biases and norms of
// heads are those of `facts`.
ModelConfig llama_like_model(const HfConfig& config, ModelConfig facts,
                             const LlamaLikeDefaults& defaults = {});

// The inverse: the keys that llama_like_model() and set_rotary() read.
nlohmann::ordered_json llama_like_keys(const ModelConfig& model);
// The same without "partial_rotary_factor", for families of which Transformers rotates all
// channels, and without "head_dim" where heads fill the width.
nlohmann::ordered_json whole_rotary_keys(const ModelConfig& model);
// "sliding_window": a number of keys, or null.
nlohmann::ordered_json window_key(const ModelConfig& model);
// The name of an activation in config.json.
std::string hf_activation_name(ActivationKind kind);

// Every canonical tensor of the model under LLaMA's names, which begin with "model." except for the
// head. Those of experts have Qwen's names.
std::vector<HfPlace> llama_like_places(const ModelConfig& model);

// "rope_scaling" (Transformers 4), else "rope_parameters" (5): of both, Transformers takes the
// former, and its defaults for what that lacks.
HfConfig rotary_keys(const HfConfig& config);
// Reads rotary_keys() and "rope_theta"; `base`: where both lack it.
void set_rotary(const HfConfig& config, ModelConfig& model, double base = 10000);
// Reads one object of "rope_parameters". `base`: where it names none.
void set_rotary(const HfConfig& config, const HfConfig& rope, double base, ModelConfig& model);

// The angles of models of which layers with a window have others, without scaling: Transformers 5
// has those of each kind of layer in "rope_parameters"; in older files the scaling is that of
// layers without a window. `bases`: where none is named. And the inverse.
struct RotaryBases {
  double full = 10000;
  double local = 10000;
};
void set_angles_of_both(const HfConfig& config, const RotaryBases& bases, ModelConfig& model);
nlohmann::ordered_json angles_of_both(const ModelConfig& model);

// Of "longrope": "factor", else longest / original; a result below 1 counts as 1.
double longrope_factor(const HfConfig& rope, std::int64_t longest, std::int64_t original);

// For families whose code in Transformers ignores "partial_rotary_factor" and rotates all channels;
// other programs read the key. Throws Error(kData) if config.json has a factor other than 1.
void refuse_partial_rotary(const HfConfig& config, const ModelConfig& model);

// The value of "layer_types" if all layers have the same; "" if the key is absent. Throws
// Error(kData) if they differ.
std::string one_layer_type(const HfConfig& config);

// The experts of "num_local_experts" (or "num_experts") and "num_experts_per_tok"; of `otherwise`
// where keys are absent. Their balance in the loss is for training: 0, as in Transformers where
// "output_router_logits" is false.
ExpertFacts hf_experts(const HfConfig& config, ExpertFacts otherwise);

// The experts of GLM-4.5 and DeepSeek, whose first layers have none: "n_routed_experts" and the
// keys of groups, weights and widths. Sets the widths of the model too. `otherwise`: where keys are
// absent, and what config.json does not say; its groups have ExpertGroups::largest.
struct RoutedWords {
  const char* experts = "n_routed_experts";
  const char* shared = "n_shared_experts";
};
void set_routed_experts(const HfConfig& config, ModelConfig& model, const ExpertFacts& otherwise,
                        const RoutedWords& words = {});
void add_routed_expert_keys(const ModelConfig& model, nlohmann::ordered_json& keys,
                            const RoutedWords& words = {});
// "mlp_layer_types", which comes before "first_k_dense_replace": dense or sparse, for each layer of
// a model with experts. Absent: they stay as they are. And the inverse.
void set_mlp_layer_types(const HfConfig& config, ModelConfig& model);
nlohmann::ordered_json mlp_layer_types(const ModelConfig& model);
// Of their MLP that all tokens share.
std::vector<HfPart> shared_experts_parts();

// Throws Error(kData) if "time_step_limit" cuts off steps of Mamba-2 below or above.
void refuse_bounds_of_steps(const HfConfig& config);

// Sets a window of "sliding_window" keys, including the token itself. `otherwise`: where
// config.json lacks the key; 0: none.
void set_window(const HfConfig& config, ModelConfig& model, std::int64_t otherwise = 0);

// The same, of models in which some layers have no window: "layer_types", else, where that is
// absent, every `full_every`-th layer. `window`: where config.json lacks "sliding_window".
struct WindowDefaults {
  std::int64_t window = 0;
  std::int64_t full_every = 0;
  std::int64_t full_first = 0;  // counted from 1; 0: the last of the first full_every
};
void set_window_layers(const HfConfig& config, ModelConfig& model, const WindowDefaults& defaults);
// Sets the layers without a window: the first whose type is `word`, and others in the distance of
// the second. Without a second one, none is in so many layers.
void set_full_layers(const std::vector<std::string>& types, std::string_view word,
                     ModelConfig& model);
// Where no layer has the window, there is none.
void drop_window_of_no_layer(ModelConfig& model);
// The same, where the layers without a window have no positions either. Where "layer_types" is
// absent, "sliding_window_pattern" says how often they come.
void set_layers_without_positions(const HfConfig& config, ModelConfig& model);
// "layer_types" of such a model.
nlohmann::ordered_json window_layer_types(const ModelConfig& model);

// The dropout of embedding and branches, which is one number in Piton; `otherwise`: of an absent
// key.
void set_residual_dropout(const HfConfig& config, double otherwise, ModelConfig& model);

// Sizes, activation and dropout under GPT-2's keys (n_layer, n_embd, ...), also of GPT-J; and the
// inverse.
void set_gpt2_sizes(const HfConfig& config, double dropout, ModelConfig& model);
nlohmann::ordered_json gpt2_size_keys(const ModelConfig& model);

// The activation that `key` names; `otherwise` if the key is absent.
ActivationKind hf_activation(const HfConfig& config, const std::string& key,
                             const std::string& otherwise);

// LLaMA with latent attention, whose sizes are not set.
ModelConfig latent_facts();
// DeepSeek's: sets latent attention and the width of heads. `otherwise`: where keys are absent.
void set_latent(const HfConfig& config, ModelConfig& model, const LatentFacts& otherwise);
// Keys of a model of latent attention, without those of experts.
nlohmann::ordered_json latent_keys(const ModelConfig& model);
std::vector<HfPart> latent_parts(const ModelConfig& model);

// Qwen's: sets the experts, and the layers and widths that they have. `otherwise`: where keys are
// absent.
void set_qwen_experts(const HfConfig& config, ModelConfig& model, const ExpertFacts& otherwise);

}  // namespace piton
