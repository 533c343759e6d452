// The architectures of GGUF files: for each, the meaning of its keys and the layout of its tensors,
// as in llama.cpp. All of them are forms of one decoder.
//
// Some models can be expressed in several architectures, some in none: a file cannot change what
// llama.cpp fixes in its code (an activation, a scale of the scores).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/gguf_experts.h"
#include "gguf/gguf_keys.h"
#include "model/config.h"

namespace piton {

// How the tensors of the gated delta rule are stored.
enum class GgufDelta : std::uint8_t {
  kNone,       // models have none
  kByKeyHead,  // decay and strength in one tensor, those of each key head in turn (ssm_ba)
  kTiled       // in tensors of their own (ssm_alpha, ssm_beta); heads of values as tiled_heads.h
};

// Which layers are of Mamba-2.
enum class GgufStates : std::uint8_t {
  kNone,
  kSome,     // the others have attention, and all have an MLP or experts
  kLetters,  // each letter of a pattern is a block: Mamba-2, attention, an MLP or experts
  kAll       // none has attention or an MLP
};

struct GgufArchitecture {
  std::string name;  // general.architecture
  // Its other names: model_type of config.json, ModelConfig::family. A Hugging Face folder that is
  // made from such a file gets the first one.
  std::vector<std::string> families;
  std::string family_of_experts = "";   // that of its models with experts, if another
  std::string family_of_sigmoids = "";  // that of its models whose experts sigmoids choose
  std::string family_of_shared = "";    // that of its models with an MLP next to experts
  // What follows from the name alone; sizes are 0.
  ModelConfig (*facts)();
  // Sets what further keys and tensors tell about a model whose sizes are set. Null: nothing.
  void (*read)(const GgufKeys& keys, ModelConfig& model) = nullptr;
  // The inverse of `read`. Does not check whether the architecture can hold the model.
  void (*write)(const ModelConfig& model, GgufDescription& description) = nullptr;
  // Sizes of heads that are not the same grouped queries in all layers. Null: as usual.
  void (*read_heads)(const GgufKeys& keys, ModelConfig& model) = nullptr;
  void (*write_heads)(const ModelConfig& model, GgufDescription& description) = nullptr;
  GgufExperts experts;
  // Rotary positions rotate neighboring channels, so rows of query and key are in another order.
  bool pairs = false;
  bool always_pairs = false;      // so are rows of models without positions
  bool keeps_pairs = false;       // the same of models whose rows are in that order (rotary_pairs)
  bool packed_attention = false;  // attn_qkv: all queries, all keys, all values
  bool packed_mlp = false;        // ffn_up: gate, then up
  bool whole_heads_turn = false;  // rotary positions of a part of each head are refused
  bool heads_fill_width = false;  // all heads together are as wide as the residual stream
  bool divides_angles = false;    // reads rope_freqs.weight
  bool has_longrope = false;      // reads rope_factors_*.weight
  bool norm_after_attention = false;  // the norm of the MLP is post_attention_norm
  bool norms_in_turn = false;  // of two norms attn_norm is the MLP's, attn_norm_2 is attention's
  bool copies_head = false;    // output.weight is in the file even if the head is tied
  // Under yarn the blend is not of whole pairs, which no key says. llama.cpp rounds.
  bool fractional_pairs = false;
  bool ties_head = false;         // the head is always tied to the token table
  bool has_window = false;        // llama.cpp computes the window that a key says
  bool plain_window = false;      // layers with a window turn by the angles without scaling
  bool has_later_layers = false;  // the last layers may be some that predict later tokens
  bool grows_queries = false;     // by their positions, under yarn (gguf_rotary.h)
  bool latent = false;            // attention has latents
  GgufDelta delta = GgufDelta::kNone;
  GgufStates states = GgufStates::kNone;
  bool convolutions = false;  // some layers have short convolutions in place of attention
  // Query, key, value and gate of the rule are one tensor, ssm_in, as in older files.
  bool joint_delta_input = false;
  bool has_sections = false;  // channels turn by one of several positions (gguf_rotary.h)
  // Keys and values of latents are one tensor, attn_kv_b, as in older files.
  bool joint_key_value = false;
};

std::vector<GgufArchitecture> gguf_architectures();

// Throws Error(kData), beginning with `where`, for an unknown name.
GgufArchitecture gguf_architecture(const std::string& name, const std::string& where);

// The model that a file describes, checked, as model_in_gguf() returns it. Its vocabulary size is
// the number of rows of the token table; the head is tied if it has no separate table. Throws
// Error(kData) naming file and key.
ModelConfig gguf_model(const GgufDescription& description, const std::string& where);

// `model` without what a GGUF file cannot express and what makes no difference up to
// `max_positions`: a window and a scaling that begin after it, digits beyond fp32, and how weights
// were initialized. Norms of latents have the epsilon of the others, as in llama.cpp.
ModelConfig model_in_gguf(ModelConfig model);

// A description from which gguf_model() reads model_in_gguf(model). Of the architectures that can
// hold the model, it takes `preferred`, else one of the model's family, else the first. Throws
// Error(kData) naming what no architecture can hold; `where` names the model.
GgufDescription describe_gguf(const ModelConfig& model, const std::string& preferred,
                              const std::string& where);

}  // namespace piton
