// Rotation of channel pairs by angles that grow with the position.
#include "kernels/cuda/attention/rotary.cuh"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/rows.cuh"

namespace piton::cuda {
namespace {

// A row is a head of a row of x, a column a pair of channels.
template <typename T, bool kHalves>
struct Rotate {
  static constexpr int kVector = kVectorOf<T, Wide<T>>;
  T* x;
  RowAngles<T> angles;
  std::int64_t row_stride;
  std::int64_t head_stride;
  Division heads;

  template <int kCount>
  __device__ void run(std::int64_t head_row, std::int64_t pair) const {
    const auto index = static_cast<std::uint32_t>(head_row);
    const std::uint32_t row = heads.quotient(index);
    T* channels = x + row * row_stride + heads.rest(index, row) * head_stride;
    rotate_pairs<kHalves, kCount>(angles, row, pair, channels, channels);
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
                   .angles = {.positions = pointer<const std::int32_t>(call.positions),
                              .cosine = pointer<const Wide<T>>(call.cosine),
                              .sine = pointer<const Wide<T>>(call.sine),
                              .half = half,
                              .inverse = call.inverse},
                   .row_stride = call.x.stride(0),
                   .head_stride = call.x.stride(1),
                   .heads = Division(heads)},
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
