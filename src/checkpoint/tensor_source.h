// Where canonical tensors are read from: a checkpoint of Piton, or a file of another program whose
// reader gives its tensors canonical names, shapes and order (checkpoint/manifest.h).
//
// A rank asks for the runs of elements that it holds and for nothing else, so a source of any size
// is loaded under any layout, each rank with memory for its own part and a bounded buffer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "checkpoint/regions.h"

namespace piton {

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Names the source in messages: a folder.
  virtual std::string where() const = 0;

  // The tensors of a kind, by name; with the types in which they are stored.
  virtual std::vector<CanonicalTensor> tensors(TensorKind kind) const = 0;

  // dst [run.size()] = those elements of tensor `name`, as `dtype` (checkpoint/values.h). Asserts
  // that the tensor is there and the run is inside. Throws Error(kData) that names file, offset and
  // wanted bytes where the system cannot read them, or the file was cut short since it was opened.
  virtual void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) = 0;
};

}  // namespace piton
