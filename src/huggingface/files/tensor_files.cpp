#include "huggingface/files/tensor_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/links.h"
#include "base/files/regular_file.h"
#include "base/json.h"
#include "base/listed.h"
#include "base/nesting.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestIndex = 100'000'000;

bool present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_plain_name(const std::string& name) {
  const auto is_control = [](unsigned char letter) { return letter < ' ' || letter == 0x7f; };
  return !name.empty() && name.find('/') == name.npos && std::ranges::none_of(name, is_control) &&
         name != "." && name != "..";
}

}  // namespace

// Checks where a link leads: to files that belong to the model, not elsewhere.
void check_huggingface_link(const fs::path& file, const fs::path& model_folder) {
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(file, error))) return;
  const fs::path target = fs::canonical(file, error);
  if (error) return;  // opening it will report this
  const fs::path folder = fs::canonical(model_folder);
  const fs::path blobs = folder.parent_path().parent_path() / "blobs";
  if (folder.parent_path().filename() == "snapshots" && is_inside(target, blobs)) return;
  refuse_link_out(file, model_folder);
}

bool has_huggingface_weights(const fs::path& folder) {
  return present(folder / kHfIndexName) || present(folder / kHfSingleName) ||
         present(folder / kHfPickledIndexName) || present(folder / kHfPickledName);
}

std::map<std::string, std::string> parse_hf_index(const std::string& text,
                                                  const std::string& where) {
  check_json_depth(text, where);
  const nlohmann::json document = read_json_or_discarded<nlohmann::json>(text);
  const auto refuse = [&](const std::string& what) {
    throw Error(Fault::kData, "{}: {}; is the copy complete?", where, what);
  };
  if (!document.is_object() || !document.contains("weight_map") ||
      !document["weight_map"].is_object()) {
    refuse("got no \"weight_map\", wanted a JSON object with one");
  }
  std::map<std::string, std::string> index;
  for (const auto& [tensor, file] : document["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>()))
      refuse(fmt::format("weight_map: {}: got {}, wanted the name of a file in the folder", tensor,
                         file.dump(-1, ' ', true)));
    index[tensor] = file.get<std::string>();
  }
  if (index.empty()) refuse("weight_map: got no tensors, wanted some");
  return index;
}

HfTensorFiles::HfTensorFiles(const fs::path& folder) : folder_(folder) {
  for (const char* index : {kHfIndexName, kHfPickledIndexName}) {
    const char* single = index == kHfIndexName ? kHfSingleName : kHfPickledName;
    if (present(folder / index)) {
      open_shards(index);
      return;
    }
    if (present(folder / single)) {
      open(single);
      return;
    }
  }
  std::string found;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.starts_with("pytorch_model")) {
      found = "; got " + name + (present(entry.path()) ? "" : ", a link to no file");
      break;
    }
  }
  throw Error(Fault::kData, "{}: no weights: wanted {} or {}{}; is the download complete?",
              folder.string(), kHfSingleName, kHfIndexName, found);
}

HfTensorFiles::HfTensorFiles(const fs::path& folder, const std::string& name) : folder_(folder) {
  check_huggingface_link(folder_ / name, folder_);
  open(name);
}

void HfTensorFiles::open_shards(const char* index_name) {
  const fs::path index_path = folder_ / index_name;
  check_huggingface_link(index_path, folder_);
  const std::map<std::string, std::string> index =
      parse_hf_index(read_regular_file(index_path, kLargestIndex), index_path.string());
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index) shards.insert(file);
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    if (!present(folder_ / shard)) missing.push_back(shard);
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: {} of {} shards are missing: {}; download them again",
                folder_.string(), missing.size(), shards.size(), listed(missing));
  }
  for (const std::string& shard : shards) open(shard);
  compare(index, index_name);
}

void HfTensorFiles::open(const std::string& name) {
  check_huggingface_link(folder_ / name, folder_);
  names_.push_back(name);
  if (!name.ends_with(".safetensors")) return add_pickled(name);
  files_.push_back(std::make_unique<SafetensorsFile>(folder_ / name));
  const SafetensorsFile& file = *files_.back();
  for (const SafetensorsEntry& entry : file.entries())
    add({&file.file(), entry.name, entry.dtype, entry.shape, file.offset(entry)});
}

void HfTensorFiles::add_pickled(const std::string& name) {
  pickled_.push_back(std::make_unique<TorchFile>(folder_ / name));
  const TorchFile& file = *pickled_.back();
  const std::string where = (folder_ / name).string();
  if (file.root().kind != PickleValue::Kind::kDict)
    throw Error(Fault::kData, "{}: holds no dict, wanted one of tensors by name", where);
  std::map<std::string, const PickleValue*> tensors;  // if a name occurs twice, the last one
  for (const auto& [key, value] : file.root().pairs) {
    if (key->kind != PickleValue::Kind::kText || value->kind != PickleValue::Kind::kTensor) {
      throw Error(
          Fault::kData,
          "{}: \"{}\" is no tensor, wanted a dict of tensors by name: is it a checkpoint of "
          "another program?",
          where, key->text);
    }
    tensors[key->text] = value;
  }
  for (const auto& [key, value] : tensors) {
    TorchTensor tensor = file.tensor(*value, key);
    if (!tensor.contiguous()) {
      throw Error(
          Fault::kData,
          "{}: {} is not contiguous: got strides [{}] of shape [{}], wanted a contiguous tensor; "
          "save it again with .contiguous()",
          where, key, fmt::join(tensor.strides, ", "), fmt::join(tensor.shape, ", "));
    }
    add({&file.file(), key, tensor.dtype, std::move(tensor.shape), tensor.offset});
  }
}

void HfTensorFiles::add(HfTensor tensor) {
  const std::string name = tensor.name;
  const std::string file = tensor.file->path().filename().string();
  const auto [place, is_new] = tensors_.try_emplace(name, std::move(tensor));
  if (!is_new) {
    throw Error(Fault::kData, "{}: {} is in {} and in {}; remove the file that is not of the model",
                folder_.string(), name, place->second.file->path().filename().string(), file);
  }
}

// In both directions: a tensor that is not in the index may be from another download.
void HfTensorFiles::compare(const std::map<std::string, std::string>& index,
                            const char* index_name) const {
  for (const auto& [tensor, shard] : index) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || found->second.file->path().filename() != shard) {
      throw Error(Fault::kData, "{}: it lacks {}, which {} says it has; download it again",
                  (folder_ / shard).string(), tensor, index_name);
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    if (!index.contains(name)) {
      throw Error(Fault::kData, "{}: holds {}, which {} does not name; are the files of one model?",
                  tensor.file->path().string(), name, index_name);
    }
  }
}

}  // namespace piton
