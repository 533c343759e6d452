// Copies with any strides, sums, multiples and soft caps.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/rows.cuh"

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

// Rows are all dims but the last.
template <typename To, typename From>
struct CopyRows {
  static constexpr int kVector = kVectorOf<To, From>;
  To* dst;
  const From* src;
  Strided dims;
  Division sizes[Shape::kMaxDims];

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    const int last = dims.ndim - 1;
    std::int64_t to = column * dims.dst_stride[last];
    std::int64_t from = column * dims.src_stride[last];
    auto rest = static_cast<std::uint32_t>(row);
    for (int dim = last - 1; dim >= 0; --dim) {
      const std::uint32_t outer = sizes[dim].quotient(rest);
      const std::int64_t index = sizes[dim].rest(rest, outer);
      rest = outer;
      to += index * dims.dst_stride[dim];
      from += index * dims.src_stride[dim];
    }
    if constexpr (std::is_same_v<To, From>) {
      store(dst + to, load<kCount>(src + from));  // exact bits, also of a NaN
    } else {
      store_rounded(dst + to, load_wide<kCount>(src + from));
    }
  }
};

template <typename To, typename From>
void launch_copy(const Copy& call, const Strided& joined, cudaStream_t stream) {
  using Body = CopyRows<To, From>;
  Body body{.dst = pointer<To>(call.dst), .src = pointer<const From>(call.src), .dims = joined};
  Strided& dims = body.dims;
  if (dims.ndim == 0) dims = {.ndim = 1, .size = {1}, .dst_stride = {1}, .src_stride = {1}};
  const int last = dims.ndim - 1;
  Extent extent{.rows = 1,
                .columns = dims.size[last],
                .vectors = dims.dst_stride[last] == 1 && dims.src_stride[last] == 1};
  // joined strides, which are those of a view of the same memory
  const auto fits = [&](const Tensor& tensor, const std::int64_t* strides) {
    const std::int64_t size = size_bytes(tensor.dtype());
    const auto bytes = std::min<std::int64_t>(kVectorBytes, Body::kVector * size);
    auto bits = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.raw())) % bytes;
    for (int dim = 0; dim < last; ++dim) bits |= strides[dim] * size % bytes;
    return bits == 0;
  };
  extent.vectors =
      extent.vectors && fits(call.dst, dims.dst_stride) && fits(call.src, dims.src_stride);
  for (int dim = 0; dim < last; ++dim) {
    extent.rows *= dims.size[dim];
    body.sizes[dim] = Division(dims.size[dim]);
  }
  PITON_ASSERT(extent.rows <= Division::kLargest, "cuda: a copy of {} rows", extent.rows);
  launch_rows("launch of copy", extent, body, stream);
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
struct AddElements {
  static constexpr int kVector = kVectorOf<T>;
  T* y;
  const T* a;
  const T* b;

  template <int kCount>
  __device__ void run(std::int64_t, std::int64_t i) const {
    auto sum = load_wide<kCount>(a + i);
    const auto term = load_wide<kCount>(b + i);
    for (int j = 0; j < kCount; ++j) sum.at[j] += term.at[j];
    store_rounded(y + i, sum);
  }
};

template <typename T>
struct ScaleElements {
  static constexpr int kVector = kVectorOf<T>;
  T* y;
  const T* x;
  Wide<T> factor;
  std::int64_t columns;
  const std::int32_t* used;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = row * columns + column;
    auto product = load_wide<kCount>(x + i);
    for (Wide<T>& one : product.at) one = factor * one;
    store_rounded(y + i, product);
  }
};

template <typename S>
struct CapElements {
  static constexpr int kVector = kVectorOf<S>;
  S* y;
  const S* x;
  S cap;

  template <int kCount>
  __device__ void run(std::int64_t, std::int64_t i) const {
    auto value = load<kCount>(x + i);
    for (S& one : value.at) one = cap * tanh(one / cap);
    store(y + i, value);
  }
};

template <typename T, typename S>
struct CapGradient {
  static constexpr int kVector = kVectorOf<T, S>;
  T* dx;
  const T* dy;
  const S* y;
  S cap;

  template <int kCount>
  __device__ void run(std::int64_t, std::int64_t i) const {
    auto gradient = load_wide<kCount>(dy + i);
    const auto value = load<kCount>(y + i);
    for (int j = 0; j < kCount; ++j) {
      const S ratio = value.at[j] / cap;
      gradient.at[j] *= S{1} - ratio * ratio;
    }
    store_rounded(dx + i, gradient);
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
    if (context.only_counts()) return;
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
    launch_rows(
        "launch of add", flat(kVectorOf<T>, {call.y, call.a, call.b}),
        AddElements<T>{pointer<T>(call.y), pointer<const T>(call.a), pointer<const T>(call.b)},
        context.stream);
  });
}

void execute(const Scale& call, const CallContext& context) {
  with_floating(call.y.dtype(), [&]<typename T>(std::type_identity<T>) {
    const Extent extent = call.used.defined() ? rows_of(call.y, kVectorOf<T>, {call.y, call.x})
                                              : flat(kVectorOf<T>, {call.y, call.x});
    launch_rows("launch of scale", extent,
                ScaleElements<T>{.y = pointer<T>(call.y),
                                 .x = pointer<const T>(call.x),
                                 .factor = static_cast<Wide<T>>(call.factor),
                                 .columns = extent.columns,
                                 .used = pointer<const std::int32_t>(call.used)},
                context.stream);
  });
}

void execute(const SoftCapForward& call, const CallContext& context) {
  with_sums(call.y.dtype(), [&]<typename S>(std::type_identity<S>) {
    launch_rows(
        "launch of soft cap forward", flat(kVectorOf<S>, {call.y, call.x}),
        CapElements<S>{pointer<S>(call.y), pointer<const S>(call.x), static_cast<S>(call.cap)},
        context.stream);
  });
}

void execute(const SoftCapBackward& call, const CallContext& context) {
  with_floating(call.dx.dtype(), [&]<typename T>(std::type_identity<T>) {
    using S = Wide<T>;
    launch_rows("launch of soft cap backward", flat(kVectorOf<T, S>, {call.dx, call.dy, call.y}),
                CapGradient<T, S>{pointer<T>(call.dx), pointer<const T>(call.dy),
                                  pointer<const S>(call.y), static_cast<S>(call.cap)},
                context.stream);
  });
}

}  // namespace piton::cuda
