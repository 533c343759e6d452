// Copies with any strides, and sums.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/element.cuh"

namespace piton::cuda {
namespace {

// The dims of a copy, outermost first, after joining neighboring dims that both tensors traverse
// with one stride.
struct Strided {
  int ndim = 0;
  std::int64_t size[Shape::kMaxDims] = {};
  std::int64_t dst_stride[Shape::kMaxDims] = {};
  std::int64_t src_stride[Shape::kMaxDims] = {};

  bool contiguous() const {
    return ndim == 0 || (ndim == 1 && dst_stride[0] == 1 && src_stride[0] == 1);
  }
};

Strided join_dims(const Tensor& dst, const Tensor& src) {
  Strided joined;
  for (int dim = 0; dim < src.ndim(); ++dim) {
    const std::int64_t size = src.dim(dim);
    if (size == 1) continue;
    const int last = joined.ndim - 1;
    if (last >= 0 && joined.dst_stride[last] == size * dst.stride(dim) &&
        joined.src_stride[last] == size * src.stride(dim)) {
      joined.size[last] *= size;
      joined.dst_stride[last] = dst.stride(dim);
      joined.src_stride[last] = src.stride(dim);
    } else {
      joined.size[joined.ndim] = size;
      joined.dst_stride[joined.ndim] = dst.stride(dim);
      joined.src_stride[joined.ndim] = src.stride(dim);
      ++joined.ndim;
    }
  }
  return joined;
}

template <typename To, typename From>
__global__ void copy_elements(To* dst, const From* src, Strided dims, std::int64_t elements) {
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements;
       i += step) {
    std::int64_t rest = i;
    std::int64_t to = 0;
    std::int64_t from = 0;
    for (int dim = dims.ndim - 1; dim >= 0; --dim) {
      const std::int64_t index = rest % dims.size[dim];
      rest /= dims.size[dim];
      to += index * dims.dst_stride[dim];
      from += index * dims.src_stride[dim];
    }
    if constexpr (std::is_same_v<To, From>) {
      dst[to] = src[from];  // exact bits, also of a NaN
    } else {
      dst[to] = narrow<To>(widen(src[from]));
    }
  }
}

template <typename To, typename From>
void launch_copy(const Copy& call, const Strided& dims, cudaStream_t stream) {
  const std::int64_t elements = call.src.elements();
  copy_elements<To, From><<<blocks_for(elements, kThreads), kThreads, 0, stream>>>(
      reinterpret_cast<To*>(call.dst.raw()), reinterpret_cast<const From*>(call.src.raw()), dims,
      elements);
  check(cudaGetLastError(), "launch of copy");
}

// Without conversion, elements are moved as integers of the same size.
void launch_move(const Copy& call, const Strided& dims, cudaStream_t stream) {
  switch (size_bytes(call.src.dtype())) {
    case 1:
      return launch_copy<std::uint8_t, std::uint8_t>(call, dims, stream);
    case 2:
      return launch_copy<std::uint16_t, std::uint16_t>(call, dims, stream);
    case 4:
      return launch_copy<std::uint32_t, std::uint32_t>(call, dims, stream);
    default:
      return launch_copy<std::uint64_t, std::uint64_t>(call, dims, stream);
  }
}

// Adding two 16-bit numbers in fp32 and rounding again gives the correctly rounded sum, because
// fp32 has at least 2 p + 2 bits of significand for their p bits (Figueroa 1995).
template <typename T>
__global__ void add_elements(T* y, const T* a, const T* b, std::int64_t elements) {
  const std::int64_t step = std::int64_t{blockDim.x} * gridDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements;
       i += step) {
    y[i] = narrow<T>(widen(a[i]) + widen(b[i]));
  }
}

}  // namespace

void execute(const Copy& call, cudaStream_t stream) {
  if (call.src.elements() == 0) return;
  const Strided dims = join_dims(call.dst, call.src);
  if (call.dst.dtype() != call.src.dtype()) {
    with_floating(call.dst.dtype(), [&]<typename To>(std::type_identity<To>) {
      with_floating(call.src.dtype(), [&]<typename From>(std::type_identity<From>) {
        launch_copy<To, From>(call, dims, stream);
      });
    });
  } else if (dims.contiguous()) {
    check(
        cudaMemcpyAsync(call.dst.raw(), call.src.raw(), static_cast<std::size_t>(call.src.bytes()),
                        cudaMemcpyDeviceToDevice, stream),
        "copy");
  } else {
    launch_move(call, dims, stream);
  }
}

void execute(const Add& call, cudaStream_t stream) {
  const std::int64_t elements = call.y.elements();
  if (elements == 0) return;
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    add_elements<T><<<blocks_for(elements, kThreads), kThreads, 0, stream>>>(
        reinterpret_cast<T*>(call.y.raw()), reinterpret_cast<const T*>(call.a.raw()),
        reinterpret_cast<const T*>(call.b.raw()), elements);
  });
  check(cudaGetLastError(), "launch of add");
}

}  // namespace piton::cuda
