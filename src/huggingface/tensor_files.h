// The tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names.
//
// A download that stopped halfway is found here: a shard that is not there, one that is short, one
// that lacks a tensor which the index says it has. File names lead nowhere but into the folder, or,
// as in a cache of the hub (snapshots/HASH/FILE -> ../../blobs/HASH), to the blobs beside it.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"

namespace piton {

inline constexpr const char* kHfIndexName = "model.safetensors.index.json";
inline constexpr const char* kHfSingleName = "model.safetensors";

// There are weights in it, or an index that names some.
bool has_huggingface_weights(const std::filesystem::path& folder);

// Throws Error(kData) where `file` is a link that leads to what does not belong to its model's
// folder.
void check_huggingface_link(const std::filesystem::path& file);

// Tensor to file name, of an index. Throws Error(kData) naming `where`.
std::map<std::string, std::string> parse_hf_index(const std::string& text,
                                                  const std::string& where);

struct HfTensor {
  const SafetensorsFile* file = nullptr;
  const SafetensorsEntry* entry = nullptr;
};

class HfTensorFiles {
 public:
  // Opens every file and reads its header. Throws Error(kData) that names all shards that are
  // missing, or the first file or tensor that is wrong.
  explicit HfTensorFiles(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const std::map<std::string, HfTensor>& tensors() const { return tensors_; }
  // File names in the folder, ascending.
  const std::vector<std::string>& names() const { return names_; }

 private:
  void open(const std::string& name);
  void compare(const std::map<std::string, std::string>& index) const;

  std::filesystem::path folder_;
  std::vector<std::string> names_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, HfTensor> tensors_;
};

}  // namespace piton
