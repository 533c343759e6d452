// What both directions of the gated delta rule and of that of a state space share in device code.
// Internal to this folder.
//
// A warp has some columns of the state of a head in registers: a lane has the channels of keys
// lane, lane + 32, ... It goes through the rows of a text in order, alone.
#pragma once

#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/recurrent/text_rows.cuh"
#include "kernels/recurrent/delta_rule.h"

namespace piton::cuda {

inline constexpr int kDeltaWarps = 4;
inline constexpr int kDeltaThreads = kDeltaWarps * kWarp;
// Columns of a warp, whose states and gradients are in registers, and of a block.
template <typename T>
constexpr int kDeltaColumns = sizeof(T) == 8 ? 2 : 4;
template <typename T>
constexpr int kDeltaTile = kDeltaWarps* kDeltaColumns<T>;

// [n, heads, d], the last dim contiguous.
template <typename T>
struct StridedHeads {
  T* data;
  std::int64_t row;
  std::int64_t head;
  __device__ T& at(std::int64_t n, std::int64_t h, std::int64_t i) const {
    return data[n * row + h * head + i];
  }
};

template <typename T>
StridedHeads<T> strided_heads(const Tensor& x) {
  return {pointer<T>(x), x.stride(0), x.stride(1)};
}

template <typename T>
struct DeltaInputs {
  StridedHeads<const T> q;
  StridedHeads<const T> k;
  StridedHeads<const T> v;
  StridedRows<const T> decay;
  StridedRows<const T> strength;
  const T* rate;
  const T* bias;
  const T* skip;  // of a state space
  TextPlaces texts;
  std::int64_t keys;    // dk
  std::int64_t values;  // dv
  std::int64_t heads;   // hv
  std::int64_t shared;  // hv / hk
  Wide<T> factor;       // of queries
  bool corrects;        // false: of a state space
};

template <typename T>
DeltaInputs<T> delta_inputs(const DeltaRuleInput& in, const TextRows& texts) {
  const bool corrects = in.rule == StateRule::kDelta;
  return {.q = strided_heads<const T>(in.q),
          .k = strided_heads<const T>(in.k),
          .v = strided_heads<const T>(in.v),
          .decay = strided_rows<const T>(in.decay),
          .strength = strided_rows<const T>(in.strength),
          .rate = pointer<const T>(in.rate),
          .bias = pointer<const T>(in.bias),
          .skip = pointer<const T>(in.skip),
          .texts = places_of(texts, in.segments, in.samples, in.q.dim(0)),
          .keys = in.q.dim(2),
          .values = in.v.dim(2),
          .heads = in.v.dim(1),
          .shared = in.v.dim(1) / in.q.dim(1),
          .factor =
              static_cast<Wide<T>>(corrects ? 1 / std::sqrt(static_cast<double>(in.q.dim(2))) : 1),
          .corrects = corrects};
}

template <typename S>
__device__ S sum_of_warp(S mine) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    mine += __shfl_xor_sync(kAllLanes, mine, distance);
  return mine;
}

template <typename S>
__device__ S sigmoid_of(S x) {
  return S{1} / (S{1} + exp(-x));
}

template <typename S>
__device__ S softplus_of(S x) {
  return x > S{0} ? x + log1p(exp(-x)) : log1p(exp(x));
}

// The channels of a lane of a row of queries or keys: over the row's length, times `factor`; of a
// state space as they are.
template <typename T, int kParts>
struct KeyRow {
  Wide<T> x[kParts];

  __device__ KeyRow(const DeltaInputs<T>& in, const StridedHeads<const T>& rows, std::int64_t row,
                    std::int64_t head, Wide<T> factor) {
    const int lane = threadIdx.x % kWarp;
    Wide<T> squares = 0;
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t i = lane + p * kWarp;
      x[p] = i < in.keys ? widen(rows.at(row, head / in.shared, i)) : Wide<T>{0};
      squares += x[p] * x[p];
    }
    if (!in.corrects) return;
    const Wide<T> inverse =
        Wide<T>{1} / sqrt(sum_of_warp(squares) + static_cast<Wide<T>>(kDeltaNormEps));
    for (int p = 0; p < kParts; ++p) x[p] *= inverse * factor;
  }
};

// One row of a value head.
template <typename T, int kParts>
struct DeltaRow {
  KeyRow<T, kParts> k;
  Wide<T> keep;
  Wide<T> strength;  // of a state space the step
  bool begins;
  bool corrects;

  __device__ DeltaRow(const DeltaInputs<T>& in, const RowsOfText& text, std::int64_t row,
                      std::int64_t head)
      : k(in, in.k, row, head, Wide<T>{1}),
        begins(in.texts.begins_at(text, row)),
        corrects(in.corrects) {
    const Wide<T> step = softplus_of(widen(in.decay.at(row, head)) + widen(in.bias[head]));
    keep = exp(-exp(widen(in.rate[head])) * step);
    strength = corrects ? sigmoid_of(widen(in.strength.at(row, head))) : step;
  }
};

// The columns of a warp of the state of a head.
template <typename T, int kParts>
struct WarpState {
  Wide<T> s[kDeltaColumns<T>][kParts];

  __device__ void clear() {
    for (auto& column : s) {
      for (Wide<T>& one : column) one = 0;
    }
  }
  __device__ void keep(const DeltaRow<T, kParts>& row) {
    for (auto& column : s) {
      for (Wide<T>& one : column) one = row.begins ? Wide<T>{0} : one * row.keep;
    }
  }
  // v - S^T k of a column; of a state space v. After keep().
  __device__ Wide<T> error(const DeltaRow<T, kParts>& row, int column, Wide<T> v) const {
    if (!row.corrects) return v;
    Wide<T> u = 0;
    for (int p = 0; p < kParts; ++p) u += s[column][p] * row.k.x[p];
    return v - sum_of_warp(u);
  }
  __device__ void add(const DeltaRow<T, kParts>& row, int column, Wide<T> d) {
    for (int p = 0; p < kParts; ++p) s[column][p] += row.k.x[p] * d;
  }
};

// use(std::integral_constant<int, parts>) with the channels of keys that a lane has.
template <typename Use>
void with_key_parts(std::int64_t keys, Use use) {
  PITON_ASSERT(keys <= 8 * kWarp, "cuda: keys of {} channels of the delta rule", keys);
  if (keys <= kWarp) return use(std::integral_constant<int, 1>{});
  if (keys <= 2 * kWarp) return use(std::integral_constant<int, 2>{});
  if (keys <= 4 * kWarp) return use(std::integral_constant<int, 4>{});
  use(std::integral_constant<int, 8>{});
}

template <typename T>
std::int64_t delta_tiles(const DeltaRuleInput& in) {
  return (in.v.dim(2) + kDeltaTile<T> - 1) / kDeltaTile<T>;
}

}  // namespace piton::cuda
