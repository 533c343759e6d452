// Values that GGUF files hold in another form than canonical tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace piton {

// What a file has of a canonical value x.
enum class GgufTransform : std::uint8_t {
  kNone,  // x
  kGain,  // 1 + x: gains of norms whose canonical weights are differences from 1
  kRate   // -exp(x): rates of decay of the gated delta rule and of Mamba-2
};

void to_stored(GgufTransform transform, std::span<float> values);

// The inverse. Throws Error(kData), beginning with `where`, for a value that no x gives.
void from_stored(GgufTransform transform, std::span<float> values, const std::string& where);

}  // namespace piton
