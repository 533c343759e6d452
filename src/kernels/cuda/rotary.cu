// Rotation of channel pairs by angles that grow with the position.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::cuda {
namespace {

template <typename T>
struct Rotate {
  T* x;
  const std::int32_t* positions;
  const Wide<T>* cosine;
  const Wide<T>* sine;
  std::int64_t row_stride;
  std::int64_t head_stride;
  std::int64_t heads;
  std::int64_t half;
  bool halves;
  bool inverse;

  __device__ void operator()(std::int64_t index) const {
    const std::int64_t pair = index % half;
    const std::int64_t head = index / half % heads;
    const std::int64_t row = index / half / heads;
    const std::int64_t angle = positions[row] * half + pair;
    const Wide<T> c = cosine[angle];
    const Wide<T> s = inverse ? -sine[angle] : sine[angle];
    T* channels = x + row * row_stride + head * head_stride;
    T& first = channels[halves ? pair : 2 * pair];
    T& second = channels[halves ? pair + half : 2 * pair + 1];
    const Wide<T> xi = widen(first);
    const Wide<T> xj = widen(second);
    first = narrow<T>(xi * c - xj * s);
    second = narrow<T>(xj * c + xi * s);
  }
};

}  // namespace

void execute(const Rotary& call, const CallContext& context) {
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_elements("launch of rotary", call.x.elements() / 2,
                    Rotate<T>{.x = pointer<T>(call.x),
                              .positions = pointer<const std::int32_t>(call.positions),
                              .cosine = pointer<const Wide<T>>(call.cosine),
                              .sine = pointer<const Wide<T>>(call.sine),
                              .row_stride = call.x.stride(0),
                              .head_stride = call.x.stride(1),
                              .heads = call.x.dim(1),
                              .half = call.x.dim(2) / 2,
                              .halves = call.convention == Rotary::Convention::kHalves,
                              .inverse = call.inverse},
                    context.stream);
  });
}

}  // namespace piton::cuda
