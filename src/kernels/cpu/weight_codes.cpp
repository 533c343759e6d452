// Expands small integers with scales into plain rows.
#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

int code_at(const WeightCodes& codes, const std::byte* row, std::int64_t column) {
  if (codes.kind == CodeKind::kInt8) return static_cast<std::int8_t>(row[column]);
  const auto pair = std::to_integer<int>(row[column / 2]);
  return column % 2 == 0 ? pair & 15 : pair >> 4;
}

// Columns [0, in) of one row, in the type that values are computed in.
template <typename T>
void expand_row(const WeightCodes& codes, std::int64_t row, std::int64_t in, T* values) {
  const std::byte* bytes = codes.codes.raw() + row * codes.codes.stride(0);
  const float* scales = codes.scales.data<float>() + row * codes.scales.stride(0);
  const float* zeros =
      codes.zeros.defined() ? codes.zeros.data<float>() + row * codes.zeros.stride(0) : nullptr;
  const float middle = codes.kind == CodeKind::kInt4 ? 8.0F : 0.0F;
  for (std::int64_t begin = 0, group = 0; begin < in; begin += codes.group, ++group) {
    const T scale = scales[group];
    const T zero = zeros != nullptr ? zeros[group] : middle;
    const std::int64_t end = begin + codes.group < in ? begin + codes.group : in;
    for (std::int64_t column = begin; column < end; ++column) {
      values[column] = scale * (static_cast<T>(code_at(codes, bytes, column)) - zero);
    }
  }
}

}  // namespace

void execute(CpuContext& context, const ExpandWeight& call) {
  const std::int64_t in = call.rows.dim(1);
  const DType dtype = call.rows.dtype();
  context.ranges(call.rows.dim(0), grain_of(in * size_bytes(dtype)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     std::byte* to =
                         call.rows.raw() + row * call.rows.stride(0) * size_bytes(dtype);
                     if (dtype == DType::kF64) {
                       expand_row(call.codes, row, in, reinterpret_cast<double*>(to));
                       continue;
                     }
                     auto* values = reinterpret_cast<float*>(context.scratch.own(in * 4));
                     expand_row(call.codes, row, in, values);
                     context.vector.convert(to, type_of(dtype), values, Type::kF32, in);
                   }
                 });
}

}  // namespace piton::cpu
