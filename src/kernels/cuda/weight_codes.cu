// Quantized weights to plain rows.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.cuh"

namespace piton::cuda {
namespace {

template <typename T>
struct Expand {
  T* rows;
  std::int64_t row_stride;
  std::int64_t in;
  const std::uint8_t* codes;
  const float* scales;
  const float* zeros;  // or nullptr
  std::int64_t group;
  std::int64_t groups;
  bool four_bits;

  __device__ void operator()(std::int64_t index) const {
    using S = Wide<T>;
    const std::int64_t row = index / in;
    const std::int64_t column = index % in;
    int code = 0;
    if (four_bits) {
      const int byte = codes[row * ((in + 1) / 2) + column / 2];
      code = column % 2 == 0 ? byte % 16 : byte / 16;
    } else {
      const int byte = codes[row * in + column];
      code = byte < 128 ? byte : byte - 256;
    }
    const std::int64_t at = row * groups + column / group;
    const S zero = zeros != nullptr ? static_cast<S>(zeros[at]) : four_bits ? S{8} : S{0};
    rows[row * row_stride + column] =
        narrow<T>(static_cast<S>(scales[at]) * (static_cast<S>(code) - zero));
  }
};

}  // namespace

void execute(const ExpandWeight& call, const CallContext& context) {
  with_floating(call.rows.dtype(), [&]<typename T>(std::type_identity<T>) {
    launch_elements("launch of expand weight", call.rows.elements(),
                    Expand<T>{.rows = pointer<T>(call.rows),
                              .row_stride = call.rows.stride(0),
                              .in = call.rows.dim(1),
                              .codes = pointer<const std::uint8_t>(call.codes.codes),
                              .scales = pointer<const float>(call.codes.scales),
                              .zeros = pointer<const float>(call.codes.zeros),
                              .group = call.codes.group,
                              .groups = call.codes.scales.dim(1),
                              .four_bits = call.codes.kind == CodeKind::kInt4},
                    context.stream);
  });
}

void execute(const PackWeight&, const CallContext&) {
  PITON_ASSERT(false, "cuda kernels ask for no packed weight: packed_bytes() is 0");
}

}  // namespace piton::cuda
