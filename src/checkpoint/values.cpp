#include "checkpoint/values.h"

#include <cstring>

#include "base/error.h"
#include "tensor/rounded.h"

namespace piton {
namespace {

// fp64 values stay wide, others are converted through fp32.
double widened(double x) { return x; }
float widened(float x) { return x; }
float widened(BFloat16 x) { return to_float(x); }
float widened(Float16 x) { return to_float(x); }

template <typename Src, typename Dst>
void convert(const std::byte* src, std::byte* dst, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    Src value;
    std::memcpy(&value, src + i * static_cast<std::int64_t>(sizeof(Src)), sizeof(Src));
    const Dst result = rounded<Dst>(widened(value));
    std::memcpy(dst + i * static_cast<std::int64_t>(sizeof(Dst)), &result, sizeof(Dst));
  }
}

template <typename Src>
void convert_from(const std::byte* src, std::byte* dst, DType dst_dtype, std::int64_t count) {
  switch (dst_dtype) {
    case DType::kF64:
      return convert<Src, double>(src, dst, count);
    case DType::kF32:
      return convert<Src, float>(src, dst, count);
    case DType::kBF16:
      return convert<Src, BFloat16>(src, dst, count);
    case DType::kF16:
      return convert<Src, Float16>(src, dst, count);
    default:
      break;
  }
  PITON_ASSERT(false, "{} is not converted", name(dst_dtype));
}

}  // namespace

void convert_values(const std::byte* src, DType src_dtype, std::byte* dst, DType dst_dtype,
                    std::int64_t count) {
  if (src_dtype == dst_dtype) {
    if (count > 0) std::memcpy(dst, src, static_cast<std::size_t>(count * size_bytes(src_dtype)));
    return;
  }
  switch (src_dtype) {
    case DType::kF64:
      return convert_from<double>(src, dst, dst_dtype, count);
    case DType::kF32:
      return convert_from<float>(src, dst, dst_dtype, count);
    case DType::kBF16:
      return convert_from<BFloat16>(src, dst, dst_dtype, count);
    case DType::kF16:
      return convert_from<Float16>(src, dst, dst_dtype, count);
    default:
      break;
  }
  PITON_ASSERT(false, "{} is not converted", name(src_dtype));
}

}  // namespace piton
