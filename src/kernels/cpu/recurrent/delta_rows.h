// What the gated delta rule reads of a head, in fp32: rows of queries, keys and values, and gates.
// Shared by forward and backward.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/cpu/recurrent/text_parts.h"
#include "kernels/recurrent/delta_rule.h"

namespace piton::cpu {

// Stretches of one buffer.
class Stretches {
 public:
  float* take(std::int64_t floats) {
    float* result = next_;
    if (next_ != nullptr) next_ += padded(floats, 16);
    count_ += padded(floats, 16);
    return result;
  }
  std::int64_t bytes() const { return count_ * 4; }
  void begin(std::byte* memory) {
    next_ = reinterpret_cast<float*>(memory);
    count_ = 0;
  }

 private:
  float* next_ = nullptr;
  std::int64_t count_ = 0;
};

struct DeltaSizes {
  std::int64_t rows = 0;     // the most of a text
  std::int64_t keys = 0;     // dk, padded
  std::int64_t columns = 0;  // dv, padded
};

// A row of one head of a tensor [n, heads, d] or [n, heads].
inline std::byte* row_of(const Tensor& x, std::int64_t row, std::int64_t head) {
  return x.raw() + (row * x.stride(0) + head * x.stride(1)) * size_bytes(x.dtype());
}

inline float number(CpuContext& context, const Tensor& x, std::int64_t row, std::int64_t head) {
  float value = 0;
  context.vector.convert(&value, Type::kF32, row_of(x, row, head), type_of(x.dtype()), 1);
  return value;
}
inline float number(CpuContext& context, const Tensor& x, std::int64_t i) {
  float value = 0;
  context.vector.convert(&value, Type::kF32, x.raw() + i * size_bytes(x.dtype()),
                         type_of(x.dtype()), 1);
  return value;
}

// Rows of a head in fp32, padded by zeros to `width`.
inline void read_rows(CpuContext& context, float* to, std::int64_t width, const Tensor& x,
                      std::int64_t head, const TextPart& part) {
  const std::int64_t d = x.dim(2);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    float* one = to + row * width;
    context.vector.convert(one, Type::kF32, row_of(x, part.begin + row, head), type_of(x.dtype()),
                           d);
    std::fill(one + d, one + width, 0.0F);
  }
}

// The same over their lengths, times `factor`; and one over the lengths.
inline void read_unit_rows(CpuContext& context, float* to, float* inverse, const DeltaSizes& sizes,
                           const Tensor& x, std::int64_t head, const TextPart& part, float factor) {
  read_rows(context, to, sizes.keys, x, head, part);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    float* one = to + row * sizes.keys;
    const float squares = context.vector.dot(one, Type::kF32, one, Type::kF32, sizes.keys);
    inverse[row] = 1 / std::sqrt(squares + static_cast<float>(kDeltaNormEps));
    context.vector.scale(one, one, Type::kF32, sizes.keys, inverse[row] * factor);
  }
}

inline float query_factor(const DeltaRuleInput& in) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(in.q.dim(2))));
}

inline double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
// log(1 + exp(x)), without overflow.
inline double softplus_of(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

// The gates of a value head.
struct Gates {
  float* keep = nullptr;      // 0: the states are 0 before the row
  float* strength = nullptr;  // after its sigmoid

  void read(CpuContext& context, const DeltaRuleInput& in, std::int64_t head,
            const TextPart& part) const {
    const double speed = std::exp(static_cast<double>(number(context, in.rate, head)));
    const double bias = number(context, in.bias, head);
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const double x = bias + number(context, in.decay, part.begin + row, head);
      keep[row] = begins_segment(part, in.segments, row)
                      ? 0.0F
                      : static_cast<float>(std::exp(-speed * softplus_of(x)));
      strength[row] =
          static_cast<float>(sigmoid_of(number(context, in.strength, part.begin + row, head)));
    }
  }
};

inline std::int64_t longest(const std::vector<TextPart>& parts) {
  std::int64_t rows = 0;
  for (const TextPart& part : parts) rows = std::max(rows, part.rows);
  return rows;
}

}  // namespace piton::cpu
