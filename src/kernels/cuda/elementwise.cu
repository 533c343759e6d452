// Copies with any strides, sums, multiples and soft caps.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

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
struct CopyElement {
  To* dst;
  const From* src;
  Strided dims;

  __device__ void operator()(std::int64_t i) const {
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
};

template <typename To, typename From>
void launch_copy(const Copy& call, const Strided& dims, cudaStream_t stream) {
  launch_elements("launch of copy", call.src.elements(),
                  CopyElement<To, From>{pointer<To>(call.dst), pointer<const From>(call.src), dims},
                  stream);
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
struct AddElement {
  T* y;
  const T* a;
  const T* b;
  __device__ void operator()(std::int64_t i) const { y[i] = narrow<T>(widen(a[i]) + widen(b[i])); }
};

template <typename T>
struct ScaleElement {
  T* y;
  const T* x;
  Wide<T> factor;
  __device__ void operator()(std::int64_t i) const { y[i] = narrow<T>(factor * widen(x[i])); }
};

template <typename S>
struct CapElement {
  S* y;
  const S* x;
  S cap;
  __device__ void operator()(std::int64_t i) const { y[i] = cap * tanh(x[i] / cap); }
};

template <typename T, typename S>
struct CapGradient {
  T* dx;
  const T* dy;
  const S* y;
  S cap;
  __device__ void operator()(std::int64_t i) const {
    const S ratio = y[i] / cap;
    dx[i] = narrow<T>(widen(dy[i]) * (S{1} - ratio * ratio));
  }
};

}  // namespace

void execute(const Copy& call, const CallContext& context) {
  const cudaStream_t stream = context.stream;
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

void execute(const Add& call, const CallContext& context) {
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_elements(
        "launch of add", call.y.elements(),
        AddElement<T>{pointer<T>(call.y), pointer<const T>(call.a), pointer<const T>(call.b)},
        context.stream);
  });
}

void execute(const Scale& call, const CallContext& context) {
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_elements("launch of scale", call.y.elements(),
                    ScaleElement<T>{pointer<T>(call.y), pointer<const T>(call.x),
                                    static_cast<Wide<T>>(call.factor)},
                    context.stream);
  });
}

void execute(const SoftCapForward& call, const CallContext& context) {
  with_sums(call.y.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch_elements(
        "launch of soft cap forward", call.y.elements(),
        CapElement<S>{pointer<S>(call.y), pointer<const S>(call.x), static_cast<S>(call.cap)},
        context.stream);
  });
}

void execute(const SoftCapBackward& call, const CallContext& context) {
  with_floating(call.dx.dtype(), [&]<typename T>(std::type_identity<T>) {
    using S = Wide<T>;
    launch_elements("launch of soft cap backward", call.dx.elements(),
                    CapGradient<T, S>{pointer<T>(call.dx), pointer<const T>(call.dy),
                                      pointer<const S>(call.y), static_cast<S>(call.cap)},
                    context.stream);
  });
}

}  // namespace piton::cuda
