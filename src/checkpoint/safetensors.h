// Tensors in a file, in the Hugging Face safetensors format.
//
//   bytes        content
//   0..7         u64  N, length of the header, little-endian; at most 100 MB
//   8..8+N-1     JSON object, begins with '{', may end with spaces:
//                  "NAME": {"dtype": "F32", "shape": [4, 1024], "data_offsets": [BEGIN, END]}
//                  "__metadata__": {"key": "text", ...}                           optional
//   8+N..        the tensors' bytes, row-major, little-endian; offsets count from here
//
// Files come from anywhere, so nothing in them is trusted. Error(kData) with file and tensor for: a
// header that is too long, is not JSON, names a key twice, has unknown fields, types or negative
// numbers; a shape whose product overflows; offsets that are out of order, outside of the file, or
// not the size of the tensor; gaps and overlaps; bytes after the last tensor. Opening takes memory
// in proportion to the header only. Tensors are read by calls, not memory-mapped
// (base/files/regular_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/files.h"
#include "base/files/regular_file.h"
#include "tensor/tensor.h"

namespace piton {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;                // as the format spells it: "F32", "BF16", "I64", "F8_E4M3", ...
  std::vector<std::int64_t> shape;  // any number of dims; none for a single number
  std::int64_t begin = 0;           // bytes from the start of the data
  std::int64_t end = 0;

  std::int64_t bytes() const { return end - begin; }
};

// "F32" for kF32, and back; nullopt for types that Piton does not have (the format has more).
std::string_view safetensors_name(DType dtype);
std::optional<DType> dtype_of_safetensors(std::string_view name);

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
  std::int64_t data_begin = 0;  // of the data in the file
};

// Checks and reads the header of a file of `file_bytes` bytes. `begin`: the start of the file, with
// at least all of the header if that fits into the file. `where` names the file in messages.
SafetensorsHeader parse_safetensors(std::span<const std::byte> begin, std::int64_t file_bytes,
                                    const std::string& where);
// The same for an open file.
SafetensorsHeader read_safetensors_header(const RegularFile& file);

// The first bytes of a file with these tensors: everything before the data. Assigns offsets to
// `entries` in their order. Pads with spaces to a multiple of 64 bytes, so that tensors have the
// same alignment in the file as in the data.
std::string make_safetensors_header(std::vector<SafetensorsEntry>& entries,
                                    const std::map<std::string, std::string>& metadata);

// Wide types first, then by name, so that every tensor is aligned to its type.
void sort_for_alignment(std::vector<SafetensorsEntry>& entries);

// A file open for reading.
class SafetensorsFile {
 public:
  // Throws Error(kData) as described above.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const SafetensorsHeader& header() const { return header_; }
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsEntry* find(const std::string& name) const;

  const RegularFile& file() const { return file_; }
  std::int64_t offset(const SafetensorsEntry& entry) const {
    return header_.data_begin + entry.begin;
  }

  // A copy in host memory. Throws Error(kData) if there is no such tensor, or if Piton does not
  // support its type or number of dims.
  Tensor tensor(const std::string& name) const;

 private:
  RegularFile file_;
  SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

// Writes a file tensor by tensor; the file appears under its name at commit().
class SafetensorsWriter {
 public:
  // Keeps the order of `entries`; begin and end need not be set. Other programs expect the metadata
  // {"format", "pt"}.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                    const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }

  // The next bytes of the data, in the order of the entries; may be parts of a tensor.
  void append(std::span<const std::byte> bytes);

  // Asserts that all bytes were appended.
  void commit();

 private:
  AtomicFile file_;
  std::vector<SafetensorsEntry> entries_;
  std::int64_t expected_bytes_ = 0;
};

// Writes contiguous host tensors in one call, sorted for alignment.
void write_safetensors(const std::filesystem::path& path,
                       const std::map<std::string, Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

}  // namespace piton
