// The names of a family's tensors, given as differences from LLaMA's.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "huggingface/families/hf_family.h"

namespace piton {

// Tensors of a layer. Canonical names begin with "layers.N." and `canonical`; names in the files
// with HfNames::layers, the number and `name`. ".E." in both: the number of an expert. Rows as in
// HfPlace.
struct HfPart {
  std::string canonical;  // "attention.query.", or a whole name
  std::string name;       // "self_attn.q_proj."
  std::int64_t first = 0;
  std::int64_t chunk = 0;
  std::int64_t stride = 0;
  std::int64_t stacks = 0;
  std::int64_t expert_rows = 0;  // from one expert to the next, if one tensor has all of them
  bool transposed = false;       // then each of the stacks is the matrix of an expert
  bool complete = false;         // `name` is whole: "weight" or "bias" does not follow
};

struct HfNames {
  std::string table = "model.embed_tokens.";
  std::string positions;   // of learned positions
  std::string table_norm;  // of a norm after the embedding
  std::string layers = "model.layers.";
  std::string final_norm = "model.norm.";
  std::string head = "lm_head.";
  std::vector<HfPart> parts;
  // Of layers that predict later tokens: what is before their number, and names of what is around
  // their blocks, of which there is one. Empty: they are layers after the others.
  std::string later_layers = "";
  std::vector<std::pair<std::string, std::string>> later_ends = {};
};

// LLaMA's names, with the parts in `other` instead of LLaMA's parts of the same canonical name.
HfNames llama_names(std::vector<HfPart> other = {});

// Query, key and value as one matrix `name`: all queries, then all keys, then all values.
std::vector<HfPart> packed_attention(const ModelConfig& model, const std::string& name);
// The same, interleaved by group: its queries, its key, its value.
std::vector<HfPart> grouped_attention(const ModelConfig& model, const std::string& name);

// The parts of a layer of Mamba-2, whose names in the files begin with `module`: "mamba.".
std::vector<HfPart> state_space_parts(const StateSpaceFacts& facts, const std::string& module);

// A place for every canonical tensor of the model; the head's too, even if it is tied.
std::vector<HfPlace> named_places(const ModelConfig& model, const HfNames& names);

}  // namespace piton
