// Tensors of other programs' files, assembled from parts of canonical tensors. For writing what
// TensorSource is for reading.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "checkpoint/tensor_source.h"

namespace piton {

// A box of a canonical tensor. It fills all columns of the assembled tensor from row `row` on (if
// that is transposed: all rows, from column `row` on).
struct AssemblyPart {
  std::string name;  // canonical; "": zeros
  Shape start;
  Shape extent;
  std::int64_t row = 0;
  // If that is transposed: from one column to the next, and the number of the matrix.
  std::int64_t step = 1;
  std::int64_t matrix = 0;
};

struct Assembly {
  std::string name;
  Shape shape;              // [rows, columns] or [rows]
  bool transposed = false;  // shape is [columns, rows] of the parts
  // Transposed ones one upon another: `shape` has the columns of all of them. Vectors have one.
  std::int64_t matrices = 1;
  std::vector<AssemblyPart> parts;

  // A canonical tensor without changes.
  static Assembly of(const std::string& canonical, const Shape& shape) {
    return {.name = canonical,
            .shape = shape,
            .parts = {{.name = canonical, .start = whole_run(shape).start, .extent = shape}}};
  }
};

// The type that holds the values of both without loss.
DType wider_dtype(DType a, DType b);
// The type that holds all parts without loss; zeros have any. `stored`: by canonical name.
DType dtype_of(const Assembly& assembly, const std::map<std::string, DType>& stored);

// A tensor of a file, and its type there.
struct TypedAssembly {
  Assembly assembly;
  DType dtype = DType::kF32;

  std::int64_t bytes() const { return assembly.shape.elements() * size_bytes(dtype); }
};

// Calls take(i, bytes) with the bytes of tensors[0], tensors[1], ..., in order, in blocks of
// bounded size. With `threads` one of them reads the next block while another takes one, so `take`
// must not use the source; null: one after the other. Asserts that the parts of each tensor cover
// each row once. Throws Error(kData) as TensorSource::read.
void assemble(TensorSource& source, std::span<const TypedAssembly> tensors, ThreadPool* threads,
              const std::function<void(std::size_t, std::span<const std::byte>)>& take);

}  // namespace piton
