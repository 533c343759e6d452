// GGUF files: opened for reading, and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "base/files/files.h"
#include "base/files/regular_file.h"
#include "gguf/gguf_header.h"

namespace piton {

// Returns whether `path` is a file whose name ends in ".gguf", or that begins like a GGUF file.
bool is_gguf_file(const std::filesystem::path& path);

class GgufFile {
 public:
  // Throws Error(kData) like parse_gguf() and RegularFile, and for a part of a split file.
  explicit GgufFile(const std::filesystem::path& path);

  const RegularFile& file() const { return file_; }
  const GgufHeader& header() const { return header_; }
  std::string where() const { return file_.path().string(); }
  // The position of the first byte of `tensor` in the file.
  std::int64_t offset(const GgufTensor& tensor) const { return header_.data_begin + tensor.offset; }

 private:
  RegularFile file_;
  GgufHeader header_;
};

class GgufWriter {
 public:
  GgufWriter(const std::filesystem::path& path, GgufHeader header);

  const GgufHeader& header() const { return header_; }
  // Appends the next bytes of the tensors, in the order of the header and without the padding
  // between tensors. A call may give a part of a tensor.
  void append(std::span<const std::byte> bytes);
  // Asserts that every byte was given.
  void commit();

 private:
  void end_tensors();

  AtomicFile file_;
  GgufHeader header_;
  std::size_t tensor_ = 0;  // the tensor that is being written
  std::int64_t left_ = 0;   // bytes of it that are still missing
};

}  // namespace piton
