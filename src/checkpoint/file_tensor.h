// Runs of elements of a tensor that is in a file, read by calls in large blocks.
//
// A file is not mapped: what is cut short or cannot be read is an error, not a signal
// (base/regular_file.h). A run of whole rows is one stretch of bytes and is read into its place. Of
// a run of some columns each row is a stretch of its own; where the bytes between two stretches are
// few, blocks with them are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/regular_file.h"
#include "checkpoint/regions.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace piton {

struct FileTensor {
  const RegularFile& file;
  std::int64_t offset = 0;  // of its first byte in the file
  DType dtype = DType::kF32;
  Shape shape;  // of one dim or more, row-major
};

// dst [run.size()] = the elements as `dtype`; where that is another type they are converted block
// by block. Throws Error(kData) as RegularFile::read_at.
void read_run(const FileTensor& tensor, const TensorRun& run, DType dtype, std::byte* dst);

// XXH3-128 of the run's bytes, as 32 hex digits.
std::string hash_of_run(const FileTensor& tensor, const TensorRun& run);
// Of `bytes` bytes from `offset` on.
std::string hash_of_bytes(const RegularFile& file, std::int64_t offset, std::int64_t bytes);

}  // namespace piton
