// Sizes of the numbers in the entries of a GGUF file.
#pragma once

#include <cstdint>

#include "gguf/gguf_header.h"

namespace piton {

// The size in bytes; 0 for strings, lists and unknown kinds.
inline std::int64_t kind_width(GgufKind kind) {
  switch (kind) {
    case GgufKind::kU8:
    case GgufKind::kI8:
    case GgufKind::kBool:
      return 1;
    case GgufKind::kU16:
    case GgufKind::kI16:
      return 2;
    case GgufKind::kU32:
    case GgufKind::kI32:
    case GgufKind::kF32:
      return 4;
    case GgufKind::kU64:
    case GgufKind::kI64:
    case GgufKind::kF64:
      return 8;
    default:
      return 0;
  }
}

}  // namespace piton
