// Quantized weights to plain rows.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::cuda {
namespace {

__device__ const float kNf4[16] = {kNf4Values[0],  kNf4Values[1],  kNf4Values[2],  kNf4Values[3],
                                   kNf4Values[4],  kNf4Values[5],  kNf4Values[6],  kNf4Values[7],
                                   kNf4Values[8],  kNf4Values[9],  kNf4Values[10], kNf4Values[11],
                                   kNf4Values[12], kNf4Values[13], kNf4Values[14], kNf4Values[15]};

// `Scale`: float, or __half.
template <typename T, typename Scale>
struct Expand {
  T* rows;
  std::int64_t row_stride;
  std::int64_t in;
  const std::uint8_t* codes;
  const Scale* scales;
  const float* zeros;   // or nullptr
  const float* minima;  // or nullptr
  std::int64_t group;
  std::int64_t groups;
  CodeKind kind;

  __device__ void operator()(std::int64_t index) const {
    using S = Wide<T>;
    const std::int64_t row = index / in;
    const std::int64_t column = index % in;
    int code = 0;
    if (kind != CodeKind::kInt8) {
      const int byte = codes[row * ((in + 1) / 2) + column / 2];
      code = column % 2 == 0 ? byte % 16 : byte / 16;
    } else {
      const int byte = codes[row * in + column];
      code = byte < 128 ? byte : byte - 256;
    }
    const std::int64_t at = row * groups + column / group;
    const S zero = zeros != nullptr                               ? static_cast<S>(zeros[at])
                   : kind == CodeKind::kInt4 && minima == nullptr ? S{8}
                                                                  : S{0};
    const S value =
        kind == CodeKind::kNf4 ? static_cast<S>(kNf4[code]) : static_cast<S>(code) - zero;
    const S product = static_cast<S>(widen(scales[at])) * value;
    const S minimum = minima != nullptr ? static_cast<S>(minima[at]) : S{0};
    rows[row * row_stride + column] = narrow<T>(product - minimum);
  }
};

}  // namespace

void execute(const ExpandWeight& call, const CallContext& context) {
  const auto expand = [&]<typename T, typename Scale>(std::type_identity<T>,
                                                      std::type_identity<Scale>) {
    launch_elements("launch of expand weight", call.rows.elements(),
                    Expand<T, Scale>{.rows = pointer<T>(call.rows),
                                     .row_stride = call.rows.stride(0),
                                     .in = call.rows.dim(1),
                                     .codes = pointer<const std::uint8_t>(call.codes.codes),
                                     .scales = pointer<const Scale>(call.codes.scales),
                                     .zeros = pointer<const float>(call.codes.zeros),
                                     .minima = pointer<const float>(call.codes.minima),
                                     .group = call.codes.group,
                                     .groups = call.codes.scales.dim(1),
                                     .kind = call.codes.kind},
                    context.stream);
  };
  with_floating(call.rows.dtype(), [&]<typename T>(std::type_identity<T> rows) {
    if (call.codes.scales.dtype() == DType::kF16) {
      expand(rows, std::type_identity<__half>{});
    } else {
      expand(rows, std::type_identity<float>{});
    }
  });
}

void execute(const PackWeight&, const CallContext&) {
  PITON_ASSERT(false, "cuda kernels ask for no packed weight: packed_bytes() is 0");
}

}  // namespace piton::cuda
