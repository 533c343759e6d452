// Canonical tensors whose elements are in boxes of a checkpoint's files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/assembly.h"
#include "checkpoint/tensor_source.h"
#include "megatron/format/megatron_files.h"
#include "model/config.h"

namespace piton {

class CanonicalPieces {
 public:
  // `stored` is `assembly`: says where the elements of its parts are. Skips padding and elements
  // that are known already: every rank has some tensors. Throws Error(kData) with `where` if a
  // tensor has two types.
  void add(const Assembly& assembly, const BoxedTensor& stored, const std::string& where);
  // Asserts that the pieces cover every element of every tensor of the model.
  void check_cover(const ModelConfig& model);

  std::vector<CanonicalTensor> tensors() const;
  // As TensorSource::read.
  void read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) const;

 private:
  // Rows and columns of a canonical tensor, and where they are stored: as of a TensorBox.
  struct Piece {
    std::int64_t row = 0, rows = 0;
    std::int64_t column = 0, columns = 0;
    const RegularFile* file = nullptr;
    std::int64_t offset = 0;
    std::int64_t stride = 0;
    bool transposed = false;
  };
  struct Canonical {
    CanonicalTensor tensor;
    std::vector<Piece> pieces;
  };
  // Of rows [top, bottom).
  static void will_read(const Canonical& canonical, std::int64_t top, std::int64_t bottom);
  // A run, and the columns of its region.
  struct ColumnRun {
    const TensorRun& run;
    std::int64_t columns = 1;
    std::int64_t first_column = 0;
  };
  // Reads rows [top, bottom) and columns [left, right) of a tensor, which the piece has, row by
  // row.
  struct Window {
    std::int64_t top = 0, bottom = 0;
    std::int64_t left = 0, right = 0;
  };
  static void read_window(const Piece& piece, DType stored, const Window& window, DType dtype,
                          std::byte* dst);
  // Reads the part of the run that is in the piece.
  static void read_piece(const Piece& piece, DType stored, const ColumnRun& wanted, DType dtype,
                         std::byte* dst);

  std::map<std::string, Canonical> tensors_;
};

}  // namespace piton
