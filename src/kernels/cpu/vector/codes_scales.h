// Scales of products of codes (codes_loops.h); included after the words of a set.
#pragma once

#include <bit>

#include "kernels/cpu/vector/codes.h"
#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {
namespace {

PITON_INLINE F load_halves(const Half* p, Full) { return load_halves(p); }
PITON_INLINE F load_halves(const Half* p, int count) { return load(p, count); }

template <int count>
PITON_INLINE F signed_bytes(const signed char* p) {
  typedef signed char B __attribute__((vector_size(kLanes)));
  B bytes{};
  __builtin_memcpy(&bytes, p, count);
  return __builtin_convertvector(widen_bytes(bytes), F);
}

// a in the first half of the lanes, b in the second one.
PITON_INLINE F halves(float a, float b) {
  I lanes{};
  for (int i = 0; i < kLanes; ++i) lanes[i] = i;
  return lanes < kLanes / 2 ? splat(a) : splat(b);
}

// Bytes of groups [begin, begin + n) of row o times the factors of their blocks. Writes up to
// kLanes floats behind them.
inline void scale_bytes(float* to, const CodedRows& w, const CodeScales& scales, std::int64_t o,
                        std::int64_t begin, std::int64_t n) {
  constexpr int kHalf = kLanes / 2;
  const std::int64_t each = kScaleBlockColumns / w.group;  // groups of a block
  const int shift = std::countr_zero(static_cast<std::uint64_t>(each));
  const auto* bytes = static_cast<const signed char*>(scales.values) + o * w.groups;
  const float* blocks = scales.blocks + o * (w.groups >> shift);
  const std::int64_t end = begin + n;
  to -= begin;
  std::int64_t i = begin;
  if (begin % each == 0 && each >= kLanes) {
    while (i + each <= end) {
      const F factor = splat(blocks[i >> shift]);
      for (const std::int64_t last = i + each; i < last; i += kLanes)
        store(to + i, signed_bytes<kLanes>(bytes + i) * factor);
    }
  } else if (begin % each == 0 && each == kHalf) {
    for (; i + kLanes <= end; i += kLanes) {
      const float* factors = blocks + (i >> shift);
      store(to + i, signed_bytes<kLanes>(bytes + i) * halves(factors[0], factors[1]));
    }
    if (i + kHalf <= end) {
      store(to + i, signed_bytes<kHalf>(bytes + i) * splat(blocks[i >> shift]));
      i += kHalf;
    }
  }
  for (; i < end; ++i) to[i] = static_cast<float>(bytes[i]) * blocks[i >> shift];
}

// Scales of `n` groups of a row; as scale_bytes().
PITON_INLINE void load_scales(float* to, const CodedRows& w, std::int64_t row, std::int64_t group,
                              std::int64_t n) {
  if (w.block_scales != nullptr) return scale_bytes(to, w, scales_of(w), row, group, n);
  const std::int64_t first = row * w.groups + group;
  const auto copy = [&](const auto* from) __attribute__((always_inline)) {
    for_vectors(
        n, [&](std::int64_t i, auto count) __attribute__((always_inline)) {
          store(to + i, load(from + first + i, count), count);
        });
  };
  if (w.scale_type == Type::kF32) {
    copy(static_cast<const float*>(w.scales));
  } else {
    copy(static_cast<const Half*>(w.scales));
  }
}

// Scales of one row of the weight.
struct RowScales {
  const float* scales;  // [lanes >> shift of TileScales], then 0
  const float* zeros;   // [groups]: scale * zero, or minima; or none
};

// Scales, and memory for those of a tile: see code_memory().
class TileScales {
 public:
  TileScales(const CodedRows& w, bool subtracts, float* memory)
      : w_(w), subtracts_(subtracts), step_(code_scales(w) + 32), memory_(memory) {
    if (w.groups == 1) {
      shift_ = 31;  // all lanes
      return;
    }
    const auto each = static_cast<std::uint64_t>(w.group / code_lane(w));
    repeats_ = !std::has_single_bit(each);
    if (!repeats_) shift_ = std::countr_zero(each);
  }

  // 1 << shift neighboring lanes have one scale.
  int shift() const { return shift_; }

  // Of row o of the weight; `place`: of this row in the tile.
  RowScales of(std::int64_t o, int place) const {
    float* scales = memory_ + place * 2 * step_;
    float* zeros = scales + step_;
    widen(scales, o);
    if (subtracts_) subtracted(zeros, scales, o);
    if (repeats_) repeat(scales);
    return {scales, subtracts_ ? zeros : nullptr};
  }

 private:
  // to[i] = values(i) for every group, then zeros. values(i, Full or count).
  template <typename Values>
  void fill(float* to, Values values) const {
    std::int64_t i = 0;
    for (; i + kLanes <= w_.groups; i += kLanes) store(to + i, values(i, Full{}));
    if (i < w_.groups && i > 0) {
      store(to + w_.groups - kLanes, values(w_.groups - kLanes, Full{}));  // some once more
    } else if (i < w_.groups) {
      store(to, values(0, static_cast<int>(w_.groups)));
    }
    store(to + w_.groups, splat(0));
  }
  // From scales of groups to those of lanes, in place.
  void repeat(float* scales) const {
    const std::int64_t lanes = w_.columns / code_lane(w_);
    const std::int64_t each = w_.group / code_lane(w_);
    for (std::int64_t i = lanes - 1; i >= 0; --i) scales[i] = scales[i / each];
    store(scales + lanes, splat(0));
  }
  // In fp32, times `step`.
  void widen(float* to, std::int64_t o) const {
    if (w_.block_scales != nullptr) {
      scale_bytes(to, w_, scales_of(w_), o, 0, w_.groups);
      store(to + w_.groups, splat(0));
    } else if (w_.scale_type == Type::kF16) {
      const Half* from = static_cast<const Half*>(w_.scales) + o * w_.groups;
      fill(to, [&](std::int64_t i, auto count) { return load_halves(from + i, count) * w_.step; });
    } else {
      const float* from = static_cast<const float*>(w_.scales) + o * w_.groups;
      fill(to, [&](std::int64_t i, auto count) { return load(from + i, count) * w_.step; });
    }
  }
  void subtracted(float* to, const float* scales, std::int64_t o) const {
    if (w_.block_minima != nullptr) {
      scale_bytes(to, w_, minima_of(w_), o, 0, w_.groups);
      store(to + w_.groups, splat(0));
    } else if (w_.minima != nullptr) {
      const float* minima = static_cast<const float*>(w_.minima) + o * w_.groups;
      fill(to, [&](std::int64_t i, auto count) { return load(minima + i, count); });
    } else if (w_.zeros == nullptr) {
      fill(to, [&](std::int64_t i, auto) { return load(scales + i) * splat(w_.zero); });
    } else {
      const float* zeros = w_.zeros + o * w_.groups;
      fill(to,
           [&](std::int64_t i, auto count) { return load(scales + i) * load(zeros + i, count); });
    }
  }

  const CodedRows& w_;
  bool subtracts_;
  std::int64_t step_;
  float* memory_;
  int shift_ = 0;
  bool repeats_ = false;  // groups of other sizes: each lane has a scale
};

}  // namespace
}  // namespace piton::cpu::PITON_ISA
