// Converts runs of numbers from one floating type to another, on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace piton {

// dst[i] = src[i] for `count` elements. Copies bytes if the types are equal; otherwise both must be
// floating, and values are rounded to nearest even. Pointers need not be aligned. Asserts that
// integers are not converted.
void convert_values(const std::byte* src, DType src_dtype, std::byte* dst, DType dst_dtype,
                    std::int64_t count);

}  // namespace piton
