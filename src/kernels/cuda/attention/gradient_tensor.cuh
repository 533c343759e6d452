// What the gradients of attention on tensor cores share, by the formulas of attention_backward.cu.
// Internal to this folder.
//
// A warp owns 16 rows: queries, or keys. The scores of its rows and a tile of the other side, and
// their gradients, stay in its registers, where they are the left sides of the next products. They
// are rounded to the type of the rows for these; all sums are in fp32. While a tile is multiplied,
// the next one is copied.
#pragma once

#include "kernels/cuda/attention/attention_gradient.cuh"
#include "kernels/cuda/attention/kept_pairs.cuh"
#include "kernels/cuda/attention/tensor_tiles.cuh"

namespace piton::cuda {

// The log-sum-exp of a query in base 2, or infinity if it sees no key: P is 0 then; and
// dout . out.
struct alignas(8) QueryTerms {
  float lse;
  float dout_out;
};
struct alignas(16) TwoQueryTerms {
  QueryTerms of[2];
};

// From a product to a probability.
enum class PairForm {
  kPlain,    // a score is a scaled product, and there is no dropout
  kDropped,  // the same with dropout
  kRuled     // slopes, a bias or a soft cap
};

// use(std::integral_constant<PairForm, form>)
template <typename Use>
void with_form(PairForm form, Use use) {
  if (form == PairForm::kPlain) return use(std::integral_constant<PairForm, PairForm::kPlain>{});
  if (form == PairForm::kRuled) return use(std::integral_constant<PairForm, PairForm::kRuled>{});
  use(std::integral_constant<PairForm, PairForm::kDropped>{});
}

template <typename T>
struct TensorGrid {
  BackwardGrid<T> pairs;
  QueryTerms* terms;    // [b, a, padded]
  std::int64_t padded;  // queries of a sample, and those that fill the last tile
  std::int64_t samples;
  bool vectors;  // in_vectors(), of all inputs
  PairForm form;

  __device__ const QueryTerms* terms_of(std::int64_t sample, std::int64_t head) const {
    return terms + (sample * pairs.heads + head) * padded;
  }
};

// Two tiles of the other side, the terms of their rows and the kept pairs, twice: one is used, the
// other filled.
template <typename T, int kSteps>
struct Stages {
  static constexpr int kTerms = kTensorTile * static_cast<int>(sizeof(QueryTerms) / sizeof(T));
  static constexpr int kKept = kKeptWords * static_cast<int>(sizeof(std::uint32_t) / sizeof(T));
  static constexpr int kNumbers = 2 * kTensorNumbers<kSteps> + kTerms + kKept;
  static constexpr std::size_t kBytes = 2 * kNumbers * sizeof(T);
  static constexpr std::size_t kBytesWithOwn = kBytes + kTensorNumbers<kSteps> * sizeof(T);

  __device__ T* first(int stage) const { return shared_array<T>() + stage * kNumbers; }
  __device__ T* second(int stage) const { return first(stage) + kTensorNumbers<kSteps>; }
  __device__ QueryTerms* terms(int stage) const {
    return reinterpret_cast<QueryTerms*>(second(stage) + kTensorNumbers<kSteps>);
  }
  __device__ std::uint32_t* kept(int stage) const {
    return reinterpret_cast<std::uint32_t*>(terms(stage) + kTensorTile);
  }
  __device__ T* own() const { return shared_array<T>() + 2 * kNumbers; }
};

// How many rows of the other side a warp multiplies at a time: more of them hide the latency of
// the tensor cores, fewer leave registers for wide heads.
template <int kSteps>
inline constexpr int kPart = kSteps <= 4 ? 32 : 16;

// P, and the gradients of the scaled products, of 16 rows and kCount blocks of 8.
template <int kCount>
struct Pairs {
  float p[kCount][4];   // before: products
  float ds[kCount][4];  // before: dout . v
};

// P times its mask factor, and dS, of a visible pair without rules. `factor`: of the product.
template <int kCount>
__device__ void take_pair(Pairs<kCount>& pairs, int j, int e, float factor, const QueryTerms& terms,
                          float mask_factor) {
  const float p = power_of_two(fmaf(pairs.p[j][e], factor, -terms.lse));
  pairs.ds[j][e] = p * (mask_factor * pairs.ds[j][e] - terms.dout_out);
  pairs.p[j][e] = mask_factor * p;
}

// Pair e of block j is nothing where bit 4 j + e is set.
template <int kCount>
__device__ void hide_block(Pairs<kCount>& pairs, int j, std::uint32_t hidden) {
  for (int e = 0; e < 4; ++e) {
    if ((hidden >> (4 * j + e) & 1U) != 0) pairs.p[j][e] = pairs.ds[j][e] = 0;
  }
}

template <int kCount>
__device__ void hide(Pairs<kCount>& pairs, std::uint32_t hidden) {
  for_each_block<kCount>([&](int j) { hide_block(pairs, j, hidden); });
}

template <typename T>
__device__ QueryFacts facts_of(const BackwardGrid<T>& grid, std::int64_t sample, std::int64_t head,
                               std::int64_t query, float dout_out) {
  return {query, grid.sight.place_of(sample, query),
          grid.lse[(sample * grid.heads + head) * grid.sight.queries + query], dout_out};
}

inline unsigned tiles_of(std::int64_t rows) {
  return static_cast<unsigned>((rows + kTensorTile - 1) / kTensorTile);
}

// Write dq; dk and dv.
template <typename T, int kChannels>
void launch_query_gradient(const AttentionBackward& call, const TensorGrid<T>& grid,
                           cudaStream_t stream);
template <typename T, int kChannels>
void launch_key_gradient(const AttentionBackward& call, const TensorGrid<T>& grid,
                         cudaStream_t stream);

}  // namespace piton::cuda
