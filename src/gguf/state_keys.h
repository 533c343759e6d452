// Keys of layers with states of fixed size in GGUF files, which several kinds of layers have.
#pragma once

#include <cstdint>

#include "gguf/gguf_keys.h"

namespace piton {

inline constexpr const char* kFilterWidth = "ssm.conv_kernel";
inline constexpr const char* kStateSize = "ssm.state_size";
inline constexpr const char* kStateGroups = "ssm.group_count";
inline constexpr const char* kStateHeads = "ssm.time_step_rank";
inline constexpr const char* kConvolutionWidth = "shortconv.l_cache";
inline constexpr const char* kLayerNormEps = "attention.layer_norm_epsilon";
inline constexpr const char* kInnerSize = "ssm.inner_size";

// Bounded, so that the elements of matrices of that many heads or groups, of that many channels and
// with below 2^31 columns, can be counted.
inline std::int64_t state_size(const GgufKeys& keys, const char* key) {
  constexpr std::int64_t kMost = 1 << 15;
  const std::int64_t size = keys.size(key);
  if (size > kMost) keys.refuse(key, fmt::format("at most {}", kMost));
  return size;
}

}  // namespace piton
