// Rotary positions in the keys and tables of a GGUF file.
//
//   rope.dimension_count, rope.freq_base, rope.scaling.type (none, linear, yarn), .factor,
//   .original_context_length, .attn_factor
//   rope_freqs.weight          [c/2]: divisors of the angles. LLaMA-3's scaling is written so, and
//   as
//                              entries piton.rope.* with the numbers that these follow from
//   rope_factors_short.weight, rope_factors_long.weight   [c/2]: those of longrope
#pragma once

#include "gguf/gguf_keys.h"
#include "model/config.h"

namespace piton {

inline constexpr const char* kRopeDivisors = "rope_freqs.weight";
inline constexpr const char* kShortDivisors = "rope_factors_short.weight";
inline constexpr const char* kLongDivisors = "rope_factors_long.weight";

// Sizes and the longest sequence of `model` are set.
void read_gguf_rotary(const GgufKeys& keys, ModelConfig& model);
void write_gguf_rotary(const ModelConfig& model, GgufDescription& description);

}  // namespace piton
