// A source of canonical tensors: a checkpoint of Piton, or a file of another program whose reader
// maps its tensors to canonical names, shapes and order (checkpoint/manifest.h).
//
// A rank asks only for the runs of elements that it holds, so a source of any size can be loaded
// under any layout; each rank needs memory for its own part and a bounded buffer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "checkpoint/regions.h"

namespace piton {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // The name of the source in messages: a folder.
  virtual std::string where() const = 0;

  // The tensors of a kind, by name, with their stored types.
  virtual std::vector<CanonicalTensor> tensors(TensorKind kind) const = 0;

  // dst [run.size()] = the elements of the run of tensor `name`, as `dtype` (checkpoint/values.h).
  // Asserts that the tensor exists and has the run. Throws Error(kData) with file, offset and
  // number of bytes if they cannot be read, or if the file was truncated since it was opened.
  virtual void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) = 0;

  // Whether several threads may call read() at once.
  virtual bool reads_in_parallel() const { return false; }
};

}  // namespace piton
