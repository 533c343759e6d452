// Rotation of channel pairs by angles that grow with the position.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/rows.cuh"

namespace piton::cuda {
namespace {

// A row is a head of a row of x, a column a pair of channels.
template <typename T, bool kHalves>
struct Rotate {
  static constexpr int kVector = kVectorOf<T, Wide<T>>;
  T* x;
  const std::int32_t* positions;
  const Wide<T>* cosine;
  const Wide<T>* sine;
  std::int64_t row_stride;
  std::int64_t head_stride;
  Division heads;
  std::int64_t half;
  bool inverse;

  template <int kCount>
  __device__ void run(std::int64_t head_row, std::int64_t pair) const {
    const auto index = static_cast<std::uint32_t>(head_row);
    const std::uint32_t row = heads.quotient(index);
    const std::int64_t angle = std::int64_t{positions[row]} * half + pair;
    const auto c = load<kCount>(cosine + angle);
    auto s = load<kCount>(sine + angle);
    for (Wide<T>& one : s.at) one = inverse ? -one : one;
    T* channels = x + row * row_stride + heads.rest(index, row) * head_stride;
    if constexpr (kHalves) {
      auto first = load_wide<kCount>(channels + pair);
      auto second = load_wide<kCount>(channels + half + pair);
      for (int i = 0; i < kCount; ++i) turn(first.at[i], second.at[i], c.at[i], s.at[i]);
      store_rounded(channels + pair, first);
      store_rounded(channels + half + pair, second);
    } else if constexpr (kCount == 1) {
      auto first = load_wide<1>(channels + 2 * pair);
      auto second = load_wide<1>(channels + 2 * pair + 1);
      turn(first.at[0], second.at[0], c.at[0], s.at[0]);
      store_rounded(channels + 2 * pair, first);
      store_rounded(channels + 2 * pair + 1, second);
    } else {
      auto both = load_wide<2 * kCount>(channels + 2 * pair);
      for (int i = 0; i < kCount; ++i) {
        turn(both.at[2 * i], both.at[2 * i + 1], c.at[i], s.at[i]);
      }
      store_rounded(channels + 2 * pair, both);
    }
  }

  static __device__ void turn(Wide<T>& first, Wide<T>& second, Wide<T> c, Wide<T> s) {
    const Wide<T> xi = first;
    const Wide<T> xj = second;
    first = xi * c - xj * s;
    second = xj * c + xi * s;
  }
};

template <typename T, bool kHalves>
void launch_rotary(const Rotary& call, cudaStream_t stream) {
  using Body = Rotate<T, kHalves>;
  const std::int64_t heads = call.x.dim(1);
  const std::int64_t half = call.x.dim(2) / 2;
  const std::int64_t rows = call.x.dim(0) * heads;
  if (rows == 0) return;
  PITON_ASSERT(rows <= Division::kLargest, "cuda: rotary of {} heads", rows);
  // Both halves of a head, or a vector of pairs.
  const bool fits = kHalves ? half % Body::kVector == 0 && vectors_fit(Body::kVector, {call.x})
                            : vectors_fit(2 * Body::kVector, {call.x});
  launch_rows("launch of rotary",
              {.rows = rows,
               .columns = half,
               .vectors = fits && vectors_fit(Body::kVector, {call.cosine, call.sine})},
              Body{.x = pointer<T>(call.x),
                   .positions = pointer<const std::int32_t>(call.positions),
                   .cosine = pointer<const Wide<T>>(call.cosine),
                   .sine = pointer<const Wide<T>>(call.sine),
                   .row_stride = call.x.stride(0),
                   .head_stride = call.x.stride(1),
                   .heads = Division(heads),
                   .half = half,
                   .inverse = call.inverse},
              stream);
}

}  // namespace

void execute(const Rotary& call, const CallContext& context) {
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    if (call.convention == Rotary::Convention::kHalves) {
      launch_rotary<T, true>(call, context.stream);
    } else {
      launch_rotary<T, false>(call, context.stream);
    }
  });
}

}  // namespace piton::cuda
