#include "checkpoint/values.h"

#include <cstring>

#include "base/error.h"

namespace piton {
namespace {

template <typename T>
T load(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* address, T value) {
  std::memcpy(address, &value, sizeof(T));
}

double read_value(const std::byte* address, DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return load<double>(address);
    case DType::kF32:
      return load<float>(address);
    case DType::kBF16:
      return to_float(load<BFloat16>(address));
    case DType::kF16:
      return to_float(load<Float16>(address));
    default:
      break;
  }
  PITON_ASSERT(false, "{} is not converted", name(dtype));
  return 0;
}

// From fp64 to 16 bits it goes through fp32, as in the kernels: fp64 is for checks, not for
// training.
void write_value(std::byte* address, DType dtype, double value) {
  switch (dtype) {
    case DType::kF64:
      return store(address, value);
    case DType::kF32:
      return store(address, static_cast<float>(value));
    case DType::kBF16:
      return store(address, to_bfloat16(static_cast<float>(value)));
    case DType::kF16:
      return store(address, to_float16(static_cast<float>(value)));
    default:
      break;
  }
  PITON_ASSERT(false, "{} is not converted", name(dtype));
}

}  // namespace

void convert_values(const std::byte* src, DType src_dtype, std::byte* dst, DType dst_dtype,
                    std::int64_t count) {
  const std::int64_t src_width = size_bytes(src_dtype);
  if (src_dtype == dst_dtype) {
    if (count > 0) std::memcpy(dst, src, static_cast<std::size_t>(count * src_width));
    return;
  }
  const std::int64_t dst_width = size_bytes(dst_dtype);
  for (std::int64_t i = 0; i < count; ++i) {
    write_value(dst + i * dst_width, dst_dtype, read_value(src + i * src_width, src_dtype));
  }
}

}  // namespace piton
