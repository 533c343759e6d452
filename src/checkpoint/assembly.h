// Tensors of other programs' files, put together from parts of canonical ones: the way out, as
// TensorSource is the way in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"

namespace piton {

// A box of a canonical tensor, at rows from `row` on of the tensor that is put together (columns
// where that is transposed), all of whose columns it fills.
struct AssemblyPart {
  std::string name;  // canonical; "": zeros
  Shape start;
  Shape extent;
  std::int64_t row = 0;
};

struct Assembly {
  std::string name;
  Shape shape;              // [rows, columns] or [rows]
  bool transposed = false;  // shape is [columns, rows] of the parts
  std::vector<AssemblyPart> parts;

  // A canonical tensor as it is.
  static Assembly of(const std::string& canonical, const Shape& shape) {
    return {.name = canonical,
            .shape = shape,
            .parts = {{.name = canonical, .start = whole_run(shape).start, .extent = shape}}};
  }
};

// Calls take(bytes) with the tensor's bytes as `dtype`, in their order, in blocks of bounded size.
// Asserts that the parts cover the rows, each once. Throws Error(kData) as TensorSource::read.
void assemble(TensorSource& source, const Assembly& assembly, DType dtype,
              const std::function<void(std::span<const std::byte>)>& take);

}  // namespace piton
