// What the gated delta rule and that of a state space read of a head, in fp32: rows of queries,
// keys and values, and gates. Shared by forward and backward.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/context.h"
#include "kernels/cpu/recurrent/delta_chunk.h"
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

// Runs place(stretches), which takes what a part of a call needs: once to count it, then in memory
// of this thread.
template <typename Place>
void place_in_scratch(CpuContext& context, const Place& place) {
  Stretches stretches;
  place(stretches);
  stretches.begin(context.scratch.own(stretches.bytes()));
  place(stretches);
}

struct DeltaSizes {
  std::int64_t rows = 0;     // the most of a text
  std::int64_t keys = 0;     // dk, padded
  std::int64_t columns = 0;  // dv, padded
};

// A row of one head of a tensor [n, heads, d] or [n, heads].
inline std::byte* row_of(const Tensor& x, std::int64_t row, std::int64_t head) {
  return x.raw() + (row * x.stride(0) + head * x.stride(1)) * size_bytes(x.dtype());
}

// One number, for which a call of the vector table would take longer than the conversion.
inline float number_at(const std::byte* from, DType dtype) {
  if (dtype == DType::kBF16) return to_float(*reinterpret_cast<const BFloat16*>(from));
  if (dtype == DType::kF16) return to_float(*reinterpret_cast<const Float16*>(from));
  return *reinterpret_cast<const float*>(from);
}
inline void write_number(std::byte* to, DType dtype, float value) {
  if (dtype == DType::kBF16) {
    *reinterpret_cast<BFloat16*>(to) = to_bfloat16(value);
  } else if (dtype == DType::kF16) {
    *reinterpret_cast<Float16*>(to) = to_float16(value);
  } else {
    *reinterpret_cast<float*>(to) = value;
  }
}
inline float number(const Tensor& x, std::int64_t row, std::int64_t head) {
  return number_at(row_of(x, row, head), x.dtype());
}
inline float number(const Tensor& x, std::int64_t i) {
  return number_at(x.raw() + i * size_bytes(x.dtype()), x.dtype());
}

inline constexpr std::int64_t kFetchedRows = 8;  // ahead

// Asks for a row of a head before it is used. Rows are pages apart, so no processor expects them.
template <bool kWrites>
void fetch_row(const Tensor& x, std::int64_t row, std::int64_t head) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t at = 0; at < x.dim(2) * size_bytes(x.dtype()); at += kLine)
    __builtin_prefetch(row_of(x, row, head) + at, kWrites ? 1 : 0);
}

// Rows of a head in fp32, padded by zeros to `width`.
inline void read_rows(CpuContext& context, float* to, std::int64_t width, const Tensor& x,
                      std::int64_t head, const TextPart& part) {
  const std::int64_t d = x.dim(2);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    float* one = to + row * width;
    if (row + kFetchedRows < part.rows) fetch_row<false>(x, part.begin + row + kFetchedRows, head);
    context.vector.convert(one, Type::kF32, row_of(x, part.begin + row, head), type_of(x.dtype()),
                           d);
    std::fill(one + d, one + width, 0.0F);
  }
}

inline bool corrects(const DeltaRuleInput& in) { return in.rule == StateRule::kDelta; }

// Rows of queries or keys: over their lengths, times `factor`, and one over the lengths. Of a state
// space as they are, and no lengths.
inline void read_key_rows(CpuContext& context, float* to, float* inverse, const DeltaSizes& sizes,
                          const DeltaRuleInput& in, const Tensor& x, std::int64_t head,
                          const TextPart& part, float factor) {
  read_rows(context, to, sizes.keys, x, head, part);
  if (!corrects(in)) return;
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
  float* strength = nullptr;  // after its sigmoid; of a state space the step

  void read(const DeltaRuleInput& in, std::int64_t head, const TextPart& part) const {
    const double speed = std::exp(static_cast<double>(number(in.rate, head)));
    const double bias = number(in.bias, head);
    for (std::int64_t row = 0; row < part.rows; ++row) {
      const double step = softplus_of(bias + number(in.decay, part.begin + row, head));
      keep[row] = begins_segment(part, in.segments, row)
                      ? 0.0F
                      : static_cast<float>(std::exp(-speed * step));
      strength[row] = static_cast<float>(
          corrects(in) ? sigmoid_of(number(in.strength, part.begin + row, head)) : step);
    }
  }
};

// The rows of a chunk, all of one segment, and the number of the state before it; -1: none.
struct ChunkRows {
  std::int64_t row = 0;
  std::int64_t rows = 0;
  std::int64_t state = -1;
};

inline std::vector<ChunkRows> chunks_of(const TextPart& part, const Tensor& segments) {
  std::vector<ChunkRows> all;
  std::int64_t states = 0;
  for (std::int64_t row = 0; row < part.rows; ++row) {
    const bool begins = begins_segment(part, segments, row);
    if (row == 0 || begins || all.back().rows == kDeltaChunk)
      all.push_back({.row = row, .state = begins ? -1 : states++});
    ++all.back().rows;
  }
  return all;
}

// The value heads of a key head, divided among threads. Gradients of keys are sums over the heads
// of a group, then over groups: which heads have one does not depend on the number of threads.
struct HeadGroups {
  std::int64_t key_heads = 0;
  std::int64_t shared = 0;  // value heads of a key head
  std::int64_t size = 0;    // value heads of a group; the last one may have fewer
  std::int64_t count = 0;   // of a key head

  explicit HeadGroups(const DeltaRuleInput& in)
      : key_heads(in.q.dim(1)), shared(in.v.dim(1) / key_heads) {
    constexpr std::int64_t kLeast = 16;  // groups of all key heads together, if there are as many
    const std::int64_t wanted = (kLeast + key_heads - 1) / key_heads;
    size = std::max<std::int64_t>(1, (shared + wanted - 1) / wanted);
    count = (shared + size - 1) / size;
  }
  std::int64_t all() const { return key_heads * count; }
  std::int64_t key_head(std::int64_t group) const { return group / count; }
  // The value heads of a group of all().
  std::int64_t begin(std::int64_t group) const {
    return key_head(group) * shared + group % count * size;
  }
  std::int64_t end(std::int64_t group) const {
    return std::min(begin(group) + size, (key_head(group) + 1) * shared);
  }
};

inline std::int64_t longest(const std::vector<TextPart>& parts) {
  std::int64_t rows = 0;
  for (const TextPart& part : parts) rows = std::max(rows, part.rows);
  return rows;
}

}  // namespace piton::cpu
