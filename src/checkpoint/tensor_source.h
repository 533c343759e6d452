// A source of canonical tensors: a checkpoint of Piton, or a file of another program whose reader
// maps its tensors to canonical names, shapes and order (checkpoint/manifest.h).
//
// A rank asks only for the runs of elements that it holds, so a source of any size can be loaded
// under any layout; each rank needs memory for its own part and a bounded buffer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/regions.h"

namespace piton {

// Columns [column, column + columns) of a row of a canonical matrix.
struct StoredRow {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t columns = 0;
};

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

  // The format in which a matrix is stored, if it is stored as codes of kernels/call.h; its values
  // are then those of these codes.
  virtual std::optional<CodeFormat> stored_format(const std::string& name) const {
    (void)name;
    return std::nullopt;
  }
  // Copies the codes of such a matrix, with all that CodedRow has in its format: whole groups of a
  // row.
  virtual void read_codes(const std::string& name, const StoredRow& row, const CodedRow& to) {
    PITON_ASSERT(false, "{} has no codes of {}, row {}, to {}", where(), name, row.row,
                 to.codes != nullptr);
  }

  // Whether several threads may call read() at once.
  virtual bool reads_in_parallel() const { return false; }
};

}  // namespace piton
