// Scales of products of codes (codes_loops.h); included after the words of a set.
#pragma once

#include "kernels/cpu/vector/codes.h"
#include "kernels/cpu/vector/simd.h"

namespace piton::cpu::PITON_ISA {
namespace {

PITON_INLINE F load_halves(const Half* p, Full) { return load_halves(p); }
PITON_INLINE F load_halves(const Half* p, int count) { return load(p, count); }

// Scales of one row of the weight.
struct RowScales {
  const float* scales;  // of products, [rows, code_scales()]
  const float* zeros;   // [groups]: scale * zero, or minima; or none
  float factor;         // of the sums
};

// Scales, and memory for those of a pass: see code_memory().
class PassScales {
 public:
  PassScales(const CodedRows& w, const IntegerRows& x, float* memory)
      : w_(w), x_(x), entries_(code_scales(w)), step_(entries_ + 32), memory_(memory) {}

  // The distance between rows of scales.
  std::int64_t stride() const { return direct() ? entries_ : step_; }

  // Of row o of the weight and rows [row, row + rows) of x; `place`: of this row in the tile.
  RowScales of(std::int64_t o, int place, std::int64_t row, int rows) const {
    if (direct()) return {x_.scales + row * entries_, nullptr, scale_of_row(o)};
    float* scales = memory_ + place * (kCodePass + 2) * step_;
    float* zeros = scales + step_;
    float* products = zeros + step_;
    widen(scales, o);
    const bool shifts = x_.group_sums != nullptr;
    if (shifts) subtracted(zeros, scales, o);
    // Where a group has several blocks.
    if (w_.group > kCodeBlock) {
      for (std::int64_t b = entries_ - 1; b >= 0; --b)
        scales[b] = scales[b * kCodeBlock / w_.group];
    }
    for (int r = 0; r < rows; ++r) {
      const float* of_x = x_.scales + (row + r) * entries_;
      float* to = products + r * step_;
      for (std::int64_t i = 0; i < entries_; i += kLanes)
        store(to + i, load(scales + i) * load(of_x + i));
    }
    return {products, shifts ? zeros : nullptr, 1};
  }

 private:
  // One scale a row, and nothing to subtract.
  bool direct() const { return w_.groups == 1 && x_.group_sums == nullptr; }
  float scale_of_row(std::int64_t o) const {
    if (w_.scale_type == Type::kF32) return static_cast<const float*>(w_.scales)[o] * w_.step;
    return load(static_cast<const Half*>(w_.scales) + o, 1)[0] * w_.step;
  }
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
  // In fp32, times `step`.
  void widen(float* to, std::int64_t o) const {
    if (w_.scale_type == Type::kF16) {
      const Half* from = static_cast<const Half*>(w_.scales) + o * w_.groups;
      fill(to, [&](std::int64_t i, auto count) { return load_halves(from + i, count) * w_.step; });
    } else {
      const float* from = static_cast<const float*>(w_.scales) + o * w_.groups;
      fill(to, [&](std::int64_t i, auto count) { return load(from + i, count) * w_.step; });
    }
  }
  void subtracted(float* to, const float* scales, std::int64_t o) const {
    if (w_.minima != nullptr) {
      const float* minima = w_.minima + o * w_.groups;
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
  const IntegerRows& x_;
  std::int64_t entries_;
  std::int64_t step_;
  float* memory_;
};

}  // namespace
}  // namespace piton::cpu::PITON_ISA
