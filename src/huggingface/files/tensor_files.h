// The tensors of a Hugging Face folder: model.safetensors, or the shards in
// model.safetensors.index.json; if neither exists, pytorch_model.bin, or the shards in
// pytorch_model.bin.index.json (pickle/torch_file.h), whose tensors must be contiguous.
//
// Detects incomplete downloads: a shard that is missing, that is too short, or that lacks a tensor
// which the index assigns to it. Files must be inside of the folder or, as in a cache of the hub
// (snapshots/HASH/FILE -> ../../blobs/HASH), in the blobs next to it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "pickle/torch_file.h"

namespace piton {

inline constexpr const char* kHfIndexName = "model.safetensors.index.json";
inline constexpr const char* kHfSingleName = "model.safetensors";
inline constexpr const char* kHfPickledIndexName = "pytorch_model.bin.index.json";
inline constexpr const char* kHfPickledName = "pytorch_model.bin";

// True if the folder has weights, or an index of weights.
bool has_huggingface_weights(const std::filesystem::path& folder);

// Throws Error(kData) if `file`, in the model's `folder`, is a link to a file that does not belong
// to that.
void check_huggingface_link(const std::filesystem::path& file, const std::filesystem::path& folder);

// Reads an index: from tensor to file name. Throws Error(kData) with `where`.
std::map<std::string, std::string> parse_hf_index(const std::string& text,
                                                  const std::string& where);

// A tensor in one of the files, row-major.
struct HfTensor {
  const RegularFile* file = nullptr;
  std::string name;
  std::string dtype;  // as safetensors spells it: "F32", "BF16", ...
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // of its first byte in the file
};

class HfTensorFiles {
 public:
  // Opens every file and reads its header. Throws Error(kData) with all missing shards, or with the
  // first file or tensor that is wrong.
  explicit HfTensorFiles(const std::filesystem::path& folder);
  // The file `name` of the folder alone: safetensors by its ending, else a pickled one.
  HfTensorFiles(const std::filesystem::path& folder, const std::string& name);

  const std::filesystem::path& folder() const { return folder_; }
  const std::map<std::string, HfTensor>& tensors() const { return tensors_; }
  // File names in the folder, ascending.
  const std::vector<std::string>& names() const { return names_; }

 private:
  void open_shards(const char* index_name);
  void open(const std::string& name);
  void add(HfTensor tensor);
  void add_pickled(const std::string& name);
  void compare(const std::map<std::string, std::string>& index, const char* index_name) const;

  std::filesystem::path folder_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::unique_ptr<TorchFile>> pickled_;
  std::map<std::string, HfTensor> tensors_;
};

}  // namespace piton
