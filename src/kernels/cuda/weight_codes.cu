// Quantized weights to plain rows.
#include "kernels/cuda/calls.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/weight_codes.cuh"

namespace piton::cuda {
namespace {

template <typename T, typename Scale>
struct Expand {
  T* rows;
  std::int64_t row_stride;
  DeviceCodes<Scale> coded;

  __device__ void operator()(std::int64_t index) const {
    const std::int64_t row = index / coded.in;
    const std::int64_t column = index % coded.in;
    const std::uint8_t* codes = coded.codes + row * coded.row_bytes();
    const std::uint32_t code =
        coded.kind == CodeKind::kInt8 ? codes[column] : codes[column / 2] >> column % 2 * 4;
    rows[row * row_stride + column] = narrow<T>(CodeGroup<T>(coded, row, column).value(code));
  }
};

}  // namespace

void execute(const ExpandWeight& call, const CallContext& context) {
  with_floating(call.rows.dtype(), [&]<typename T>(std::type_identity<T>) {
    with_coded_rows(call.codes, call.rows.dim(1), [&]<typename Scale>(DeviceCodes<Scale> coded) {
      launch_elements(
          "launch of expand weight", call.rows.elements(),
          Expand<T, Scale>{
              .rows = pointer<T>(call.rows), .row_stride = call.rows.stride(0), .coded = coded},
          context.stream);
    });
  });
}

WeightView plain_rows(const WeightView& weight, const CallContext& context) {
  if (weight.form != WeightForm::kCodes) return weight;
  WeightView plain = weight;
  plain.form = WeightForm::kRows;
  plain.codes = {};
  plain.tensor = scratch(weight.dtype, {weight.matrices * weight.out, weight.in}, context);
  execute(ExpandWeight{.rows = plain.tensor, .codes = weight.codes}, context);
  return plain;
}

void execute(const PackWeight&, const CallContext&) {
  PITON_ASSERT(false, "cuda kernels ask for no packed weight: packed_bytes() is 0");
}

}  // namespace piton::cuda
