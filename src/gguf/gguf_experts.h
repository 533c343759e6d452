// Mixtures of experts in GGUF files: keys, and the tensors in which the matrices of all experts of
// a layer are stacked, [experts, rows, columns]. Much of what a mixture computes is fixed in
// llama.cpp's code, for each architecture.
//
//   expert_count, expert_used_count
//   expert_feed_forward_length              the width of an expert
//   expert_gating_func                      1: a softmax, 2: sigmoids
//   expert_weights_norm, expert_weights_scale
//   expert_group_count, expert_group_used_count
//   leading_dense_block_count               the first layers have no experts
//   expert_shared_count                     widths of an expert that the MLP of all tokens has
//   expert_shared_feed_forward_length       in its place: its width
#pragma once

#include <cstdint>

#include "gguf/gguf_keys.h"
#include "model/config.h"

namespace piton {

inline constexpr const char* kExpertWidth = "expert_feed_forward_length";

// What a file has of a kind of tensors.
enum class GgufPart : std::uint8_t { kNever, kMaybe, kAlways };

// The mixtures that models of an architecture have.
struct GgufExperts {
  GgufPart have = GgufPart::kNever;
  // A key says the width of an expert; missing: what is left of feed_forward_length for each expert
  // of a token. Without it that is the width.
  bool own_width = false;
  // Keys say score function, whether weights add up to 1, their factor and groups. Without it these
  // are `score`, `normalized`, 1 and one group.
  bool says_rule = false;
  bool says_score = false;                // a key says the score function alone
  ScoreKind score = ScoreKind::kSoftmax;  // also where the key is missing
  bool normalized = true;
  GgufPart choice_bias = GgufPart::kNever;  // exp_probs_b
  bool dense_first = false;                 // the first layers may have no experts
  // Each letter of a pattern is a block, and those with an MLP have experts in its place.
  bool in_letters = false;
  GgufPart shared = GgufPart::kNever;  // an MLP that all tokens share
  bool shared_width = false;           // a key says its width, not the number of experts in it
  bool shared_gate = false;
};

// Sets experts and their width in a model whose sizes are set. Checks that each layer has matrices
// of as many experts as the keys say. Throws Error(kData) naming file and key or tensor, also if
// they are of the older form, a tensor for each expert.
void read_gguf_experts(const GgufExperts& form, const GgufKeys& keys, ModelConfig& model);

// The inverse, without the check. Throws Error(kData) for what llama.cpp does not hold in models of
// this form.
void write_gguf_experts(const GgufExperts& form, const ModelConfig& model, GgufDescription& out);

}  // namespace piton
