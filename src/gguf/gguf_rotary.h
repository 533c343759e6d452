// Rotary positions in the keys and tables of a GGUF file.
//
//   rope.dimension_count, rope.freq_base, rope.scaling.type (none, linear, yarn), .factor,
//   .original_context_length
//   rope.scaling.attn_factor: the factor of the tables of longrope; of yarn, what its formula is
//   multiplied with; rope.scaling.yarn_beta_fast, .yarn_beta_slow: turns between which yarn blends
//   rope.scaling.yarn_log_multiplier: of latent attention, a tenth of the factor of yarn by which
//   its scores grow (mscale_all_dim); of queries that grow, mscale_all_dim itself
//   attention.temperature_scale: by which queries grow with their positions, under yarn
//
//   rope_freqs.weight [c/2]: divisors of the angles, for LLaMA-3's scaling. Piton also writes the
//   numbers that they are computed from, as entries piton.rope.*
//   rope_factors_short.weight [c/2], rope_factors_long.weight [c/2]: divisors of longrope
//
//   rope.dimension_sections: of models for images too, in which a pair of channels turns by one of
//   several positions of a token: of pairs i, i % 3 = 0, 1 and 2, the numbers of those that turn by
//   time, height and width. In a text all three are the token's position.
//
// c is the number of channels of a head that are rotated.
#pragma once

#include "gguf/gguf_keys.h"
#include "model/config.h"

namespace piton {

inline constexpr const char* kRopeDivisors = "rope_freqs.weight";
inline constexpr const char* kShortDivisors = "rope_factors_short.weight";
inline constexpr const char* kLongDivisors = "rope_factors_long.weight";

// Sets the rotary positions of `model`, whose sizes and longest sequence must be set.
void read_gguf_rotary(const GgufKeys& keys, ModelConfig& model);
void write_gguf_rotary(const ModelConfig& model, GgufDescription& description);

// Of queries that grow with their positions; after read_gguf_rotary().
void read_gguf_growth(const GgufKeys& keys, ModelConfig& model);
void write_gguf_growth(const ModelConfig& model, GgufDescription& description);

// Throws Error(kData) for sections in which a pair turns by none of the three positions: llama.cpp
// does not turn it then. `model` has its rotary positions.
void check_gguf_sections(const GgufKeys& keys, const ModelConfig& model);
void write_gguf_sections(const ModelConfig& model, GgufDescription& description);

// What a file keeps of scaling of kind yarn: numbers in fp32, and in place of numerator and
// denominator, but for latent attention, the magnitude that they make.
RotaryScaling yarn_in_gguf(RotaryScaling scaling, bool latent);

}  // namespace piton
