// Reads a file written by torch.save: a zip archive (pickle/zip.h) of one pickle and the bytes of
// its storages. Older files (before PyTorch 1.6) are not archives and have both in sequence.
//
//   NAME/data.pkl      the pickle; a tensor in it names a storage KEY
//   NAME/data/KEY      the storage's bytes
//   NAME/byteorder     "little"; others are refused
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/files/regular_file.h"
#include "pickle/pickle_value.h"

namespace piton {

// A tensor in the file: an element is at byte `offset` + element size * sum of index * stride.
struct TorchTensor {
  std::string dtype;        // as safetensors spells it: "F32", "BF16", "I64", "BOOL", ...
  std::int64_t offset = 0;  // bytes
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;

  // Row-major without gaps.
  bool contiguous() const;
};

// Bytes of an element; 0 if the name is not a type.
std::int64_t torch_width(std::string_view dtype);

class TorchFile {
 public:
  // Reads the pickle, not the storages. Throws Error(kData) with the file and the reason; names
  // that are not allowed (pickle/globals.h) are reported before anything else.
  explicit TorchFile(const std::filesystem::path& path);
  // The same where it is a part of a file, which has to outlive this.
  explicit TorchFile(const FilePart& part);
  TorchFile(TorchFile&&) = delete;

  const RegularFile& file() const { return part_.file(); }
  const PickleValue& root() const { return document_.root(); }

  // Where the tensor's elements are. `name` is for messages. Throws Error(kData) if the storage is
  // missing, has another size than its tensor says, or is smaller than the view.
  TorchTensor tensor(const PickleValue& value, const std::string& name) const;

 private:
  struct Storage {
    std::int64_t offset = 0;
    std::int64_t bytes = 0;
  };
  void open();
  void open_archive();
  void open_stream();

  std::optional<RegularFile> own_;
  FilePart part_;
  PickleDocument document_;
  std::map<std::string, Storage> storages_;
};

}  // namespace piton
