// Reads runs of elements of a tensor in a file, by calls in large blocks.
//
// Files are not memory-mapped: a file that is truncated or cannot be read is an error, not a signal
// (base/files/regular_file.h). A run of whole rows is one stretch of bytes, read directly to its
// destination.
// In a run of some columns, each row is a separate stretch. If the gaps between stretches are
// small, whole blocks are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/files/regular_file.h"
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

// dst [run.size()] = the elements as `dtype`, converted block by block if they have another type.
// Throws Error(kData) as RegularFile::read_at.
void read_run(const FileTensor& tensor, const TensorRun& run, DType dtype, std::byte* dst);

// The same for the whole tensor. Returns hash_of_run() of it, taken block by block as it is read.
std::string read_whole(const FileTensor& tensor, DType dtype, std::byte* dst);

// XXH3-128 of the run's bytes, as 32 hex digits.
std::string hash_of_run(const FileTensor& tensor, const TensorRun& run);
// The same for `bytes` bytes from `offset` on.
std::string hash_of_bytes(const RegularFile& file, std::int64_t offset, std::int64_t bytes);

}  // namespace piton
