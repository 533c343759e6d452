// The architectures of GGUF files: for each, what its keys mean and where its tensors are, as
// llama.cpp has them. The decoder is the same for all.
//
// Some models can be said in several architectures, some in none: what llama.cpp takes for granted
// (an activation, a scale of the scores) a file cannot say otherwise.
#pragma once

#include <string>
#include <vector>

#include "gguf/gguf_keys.h"
#include "model/config.h"

namespace piton {

struct GgufArchitecture {
  std::string name;  // general.architecture
  // By which others know it: model_type of config.json, ModelConfig::family. The first is that of
  // a Hugging Face folder that is made from such a file.
  std::vector<std::string> families;
  // What the name alone says; sizes are 0.
  ModelConfig (*facts)();
  // Sets what further keys and tensors say of a model whose sizes are set. Null: nothing.
  void (*read)(const GgufKeys& keys, ModelConfig& model) = nullptr;
  // The other way. It need not look whether the architecture can hold the model.
  void (*write)(const ModelConfig& model, GgufDescription& description) = nullptr;
  // Rotary positions turn neighboring rows: those of query and key are in another order.
  bool pairs = false;
  bool packed_attention = false;  // attn_qkv: all queries, all keys, all values
  bool packed_mlp = false;        // ffn_up: gate, then up
  bool whole_heads_turn = false;  // rotary positions of a part of each head are refused
  bool heads_fill_width = false;  // all heads together are as wide as the residual stream
  bool divides_angles = false;    // reads rope_freqs.weight
  bool has_longrope = false;      // reads rope_factors_*.weight
  bool copies_head = false;       // output.weight is there also where the head is tied
  bool ties_head = false;         // the head is the token table, always
};

std::vector<GgufArchitecture> gguf_architectures();

// Throws Error(kData), beginning with `where`, for one that is not known.
GgufArchitecture gguf_architecture(const std::string& name, const std::string& where);

// The model that a file describes, checked: as_gguf_says() it. Its vocabulary is the rows of the
// table; the head is tied where it has no table of its own. Throws Error(kData) naming file and
// key.
ModelConfig gguf_model(const GgufDescription& description, const std::string& where);

// `model` without what a GGUF file cannot express and what makes no difference up to
// `max_positions`: a window and a scaling that begin after it, digits beyond fp32, and how weights
// were initialized.
ModelConfig as_gguf_says(ModelConfig model);

// A description from which gguf_model() reads as_gguf_says(model), in the architecture of the name
// `preferred` if that has one, else of the model's family, else the first. Throws Error(kData)
// naming what none can hold; `where` names the model.
GgufDescription describe_gguf(const ModelConfig& model, const std::string& preferred,
                              const std::string& where);

}  // namespace piton
