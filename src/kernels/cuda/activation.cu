// GELU in its three forms and SiLU, plain and gated.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/calls.h"
#include "kernels/cuda/rows.cuh"

namespace piton::cuda {
namespace {

template <typename T>
struct Activate {
  static constexpr int kVector = kVectorOf<T>;
  StridedRows<T> y;
  StridedRows<const T> x;
  StridedRows<const T> up;
  ActivationKind kind;
  BoundedGate<Wide<T>> bounds;
  const std::int32_t* used;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    auto value = load_wide<kCount>(&x.at(row, column));
    if (up.data != nullptr) {
      const auto factor = load_wide<kCount>(&up.at(row, column));
      for (int i = 0; i < kCount; ++i) value.at[i] = gated(kind, bounds, value.at[i], factor.at[i]);
    } else {
      for (Wide<T>& one : value.at) one = activated(kind, one);
    }
    store_rounded(&y.at(row, column), value);
  }
};

template <typename T>
struct ActivationGradient {
  static constexpr int kVector = kVectorOf<T>;
  StridedRows<T> dx;
  StridedRows<T> dup;
  StridedRows<const T> dy;
  StridedRows<const T> x;
  StridedRows<const T> up;
  ActivationKind kind;
  BoundedGate<Wide<T>> bounds;
  const std::int32_t* used;

  template <int kCount>
  __device__ void run(std::int64_t row, std::int64_t column) const {
    const auto value = load_wide<kCount>(&x.at(row, column));
    const auto gradient = load_wide<kCount>(&dy.at(row, column));
    Numbers<Wide<T>, kCount> result;
    if (up.data != nullptr) {
      const auto factor = load_wide<kCount>(&up.at(row, column));
      Numbers<Wide<T>, kCount> other;
      for (int i = 0; i < kCount; ++i) {
        const Wide<T> gate = bounds.gate(value.at[i]);
        const Wide<T> slope =
            gradient.at[i] * activation_slope(kind, gate) * bounds.up(factor.at[i]);
        result.at[i] = bounds.passes_gate(value.at[i]) ? slope : Wide<T>(0);
        other.at[i] =
            bounds.passes_up(factor.at[i]) ? gradient.at[i] * activated(kind, gate) : Wide<T>(0);
      }
      store_rounded(&dup.at(row, column), other);
    } else {
      for (int i = 0; i < kCount; ++i)
        result.at[i] = gradient.at[i] * activation_slope(kind, value.at[i]);
    }
    store_rounded(&dx.at(row, column), result);
  }
};

}  // namespace

void execute(const ActivationForward& call, const CallContext& context) {
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_rows(
        "launch of activation forward", rows_of(call.x, kVectorOf<T>, {call.y, call.x, call.up}),
        Activate<T>{strided_rows<T>(call.y), strided_rows<const T>(call.x),
                    strided_rows<const T>(call.up), call.kind, bounded_gate<Wide<T>>(call.gate),
                    pointer<const std::int32_t>(call.used)},
        context.stream);
  });
}

void execute(const ActivationBackward& call, const CallContext& context) {
  with_floating(call.x.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_rows("launch of activation backward",
                rows_of(call.x, kVectorOf<T>, {call.dx, call.dup, call.dy, call.x, call.up}),
                ActivationGradient<T>{strided_rows<T>(call.dx), strided_rows<T>(call.dup),
                                      strided_rows<const T>(call.dy), strided_rows<const T>(call.x),
                                      strided_rows<const T>(call.up), call.kind,
                                      bounded_gate<Wide<T>>(call.gate),
                                      pointer<const std::int32_t>(call.used)},
                context.stream);
  });
}

}  // namespace piton::cuda
