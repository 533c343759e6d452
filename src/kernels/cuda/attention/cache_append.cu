// Writing to a cache in pages: values as they are, or as codes of 8 bits.
#include <cmath>
#include <limits>

#include "kernels/cached_attention.h"
#include "kernels/cuda/attention/head_matrix.cuh"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/launch.cuh"

namespace piton::cuda {
namespace {

// The rows of a call, and where they go.
template <typename T>
struct NewRows {
  const T* data;
  std::int64_t row_stride;
  std::int64_t head_stride;
  const std::int32_t* slots;
  std::int64_t heads;
  std::int64_t d;

  __device__ const T* row(std::int64_t row, std::int64_t head) const {
    return data + row * row_stride + head * head_stride;
  }
};

template <typename T>
NewRows<T> new_rows(const CacheAppend& call) {
  return {.data = pointer<const T>(call.rows),
          .row_stride = call.rows.stride(0),
          .head_stride = call.rows.stride(1),
          .slots = pointer<const std::int32_t>(call.slots),
          .heads = call.rows.dim(1),
          .d = call.rows.dim(2)};
}

template <typename T>
struct Append {
  HeadMatrix<T> cache;  // "samples" are pages
  NewRows<T> rows;

  __device__ void operator()(std::int64_t index) const {
    const std::int64_t c = index % rows.d;
    const std::int64_t head = index / rows.d % rows.heads;
    const std::int64_t row = index / rows.d / rows.heads;
    const std::int64_t slot = rows.slots[row];
    cache.row(slot / kCachePage, slot % kCachePage, head)[c] = rows.row(row, head)[c];
  }
};

template <typename T>
struct AppendCodes {
  HeadMatrix<std::int8_t> cache;
  float* scales;
  std::int64_t scales_of_page;  // strides
  std::int64_t scales_of_head;
  NewRows<T> rows;
  std::int64_t count;  // rows, times heads
  float not_finite;    // the scale of a row with a value that is not finite: NaN
};

// A warp: a row of a head.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) append_codes(AppendCodes<T> all) {
  wait_for_previous();
  let_next_start();
  const std::int64_t index = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (index >= all.count) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const std::int64_t head = index % all.rows.heads;
  const std::int64_t slot = all.rows.slots[index / all.rows.heads];
  const T* x = all.rows.row(index / all.rows.heads, head);
  float largest = 0;
  float strange = 0;  // 1: a value is not finite
  for (std::int64_t c = lane; c < all.rows.d; c += kWarp) {
    const auto value = static_cast<float>(widen(x[c]));
    largest = fmaxf(largest, fabsf(value));
    if (!isfinite(value)) strange = 1;
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    strange = fmaxf(strange, __shfl_xor_sync(kAllLanes, strange, distance));
  }
  const float scale = strange > 0 ? all.not_finite : largest / 127.0F;
  std::int8_t* to = all.cache.row(slot / kCachePage, slot % kCachePage, head);
  for (std::int64_t c = lane; c < all.rows.d; c += kWarp) {
    float code = 0;
    if (scale > 0) {
      code = rintf(static_cast<float>(widen(x[c])) / scale);
      code = fmaxf(-127.0F, fminf(code, 127.0F));
    }
    to[c] = static_cast<std::int8_t>(code);
  }
  if (lane == 0) {
    all.scales[slot / kCachePage * all.scales_of_page + slot % kCachePage +
               head * all.scales_of_head] = scale;
  }
}

}  // namespace

void execute(const CacheAppend& call, const CallContext& context) {
  if (call.rows.elements() == 0) return;
  const std::int64_t count = call.rows.dim(0) * call.rows.dim(1);
  with_floating(call.rows.dtype(), [&]<typename T>(std::type_identity<T>) {
    if (!call.scales.defined()) {
      return launch_elements("launch of cache append", call.rows.elements(),
                             Append<T>{head_matrix<T>(call.cache), new_rows<T>(call)},
                             context.stream);
    }
    launch("launch of cache append, codes", append_codes<T>,
           {.blocks = {static_cast<unsigned>((count + kWarps - 1) / kWarps), 1, 1}, .early = true},
           AppendCodes<T>{.cache = head_matrix<std::int8_t>(call.cache),
                          .scales = pointer<float>(call.scales),
                          .scales_of_page = call.scales.stride(0),
                          .scales_of_head = call.scales.stride(2),
                          .rows = new_rows<T>(call),
                          .count = count,
                          .not_finite = std::numeric_limits<float>::quiet_NaN()},
           context.stream);
  });
}

}  // namespace piton::cuda
