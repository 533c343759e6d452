// Mixtures of experts in GGUF files: keys, and the tensors in which the matrices of all experts of
// a layer are stacked, [experts, rows, columns]. llama.cpp fixes the rest in its code: the weights
// of the chosen experts are divided by their sum, as in Mixtral and Qwen 3 MoE.
#pragma once

#include "gguf/gguf_keys.h"
#include "model/config.h"

namespace piton {

// Which models of an architecture have experts.
enum class GgufExperts {
  kNone,
  kSome,  // whose width is feed_forward_length
  kAll,   // whose width is expert_feed_forward_length; missing: what is left of feed_forward_length
          // for each expert of a token
};

inline constexpr const char* kExpertWidth = "expert_feed_forward_length";

// Sets experts and their width in a model whose sizes are set. Checks that each layer has matrices
// of as many experts as the keys say. Throws Error(kData) naming file and key or tensor, also if
// they are of the older form, a tensor for each expert.
void read_gguf_experts(GgufExperts experts, const GgufKeys& keys, ModelConfig& model);

// The inverse, without the check. Writes nothing if the architecture has no experts. Throws
// Error(kData) for more of them than llama.cpp holds.
void write_gguf_experts(GgufExperts experts, const ExpertFacts& facts, const ModelConfig& model,
                        GgufDescription& out);

}  // namespace piton
