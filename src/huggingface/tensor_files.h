// The tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names; or, where there are neither, pytorch_model.bin, or the shards
// of pytorch_model.bin.index.json (pickle/torch_file.h), which must be as they lie in memory.
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
#include "pickle/torch_file.h"

namespace piton {

inline constexpr const char* kHfIndexName = "model.safetensors.index.json";
inline constexpr const char* kHfSingleName = "model.safetensors";
inline constexpr const char* kHfPickledIndexName = "pytorch_model.bin.index.json";
inline constexpr const char* kHfPickledName = "pytorch_model.bin";

// There are weights in it, or an index that names some.
bool has_huggingface_weights(const std::filesystem::path& folder);

// Throws Error(kData) where `file` is a link that leads to what does not belong to its model's
// folder.
void check_huggingface_link(const std::filesystem::path& file);

// Tensor to file name, of an index. Throws Error(kData) naming `where`.
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
  // Opens every file and reads its header. Throws Error(kData) that names all shards that are
  // missing, or the first file or tensor that is wrong.
  explicit HfTensorFiles(const std::filesystem::path& folder);

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
