#include "gguf/gguf_transform.h"

#include <cmath>

#include "base/error.h"

namespace piton {
namespace {

// In fp64, so that the result is that of exact arithmetic, rounded once.
float rate_of(float stored, const std::string& where) {
  if (!(stored < 0) || std::isinf(stored))
    throw Error(Fault::kData, "{}: got {}, wanted numbers below 0: -exp(rate)", where, stored);
  return static_cast<float>(std::log(-static_cast<double>(stored)));
}

}  // namespace

void to_stored(GgufTransform transform, std::span<float> values) {
  for (float& value : values) {
    if (transform == GgufTransform::kGain) value += 1;
    if (transform == GgufTransform::kRate)
      value = static_cast<float>(-std::exp(static_cast<double>(value)));
  }
}

void from_stored(GgufTransform transform, std::span<float> values, const std::string& where) {
  for (float& value : values) {
    if (transform == GgufTransform::kGain) value -= 1;
    if (transform == GgufTransform::kRate) value = rate_of(value, where);
  }
}

}  // namespace piton
