#include "huggingface/tensor_files.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <system_error>

#include "base/error.h"
#include "base/nesting.h"
#include "base/regular_file.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestIndex = 100'000'000;
constexpr std::size_t kListed = 5;

bool present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string listed(const std::vector<std::string>& names) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(names.size(), kListed));
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + count, ", "));
  if (names.size() > kListed) text += fmt::format(" and {} more", names.size() - kListed);
  return text;
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.find('/') == name.npos && name.find('\0') == name.npos &&
         name != "." && name != "..";
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const fs::path relative = path.lexically_relative(folder);
  return !relative.empty() && *relative.begin() != "..";
}

}  // namespace

// Where the file really is: a link may lead to what else belongs to the model, not elsewhere.
void check_huggingface_link(const fs::path& file) {
  std::error_code error;
  if (!fs::is_symlink(fs::symlink_status(file, error))) return;
  const fs::path target = fs::canonical(file, error);
  if (error) return;  // opening it will say so
  const fs::path folder = fs::canonical(file.parent_path());
  const fs::path blobs = folder.parent_path().parent_path() / "blobs";
  if (is_inside(target, folder)) return;
  if (folder.parent_path().filename() == "snapshots" && is_inside(target, blobs)) return;
  throw Error(Fault::kData,
              "{}: a link that leads out of the folder, to {}; put the file itself there",
              file.string(), target.string());
}

bool has_huggingface_weights(const fs::path& folder) {
  return present(folder / kHfIndexName) || present(folder / kHfSingleName);
}

std::map<std::string, std::string> parse_hf_index(const std::string& text,
                                                  const std::string& where) {
  check_json_depth(text, where);
  const nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
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
  const fs::path index_path = folder / kHfIndexName;
  if (!present(index_path)) {
    if (present(folder / kHfSingleName)) {
      open(kHfSingleName);
      return;
    }
    std::string found;
    std::error_code ignored;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with(".safetensors") || name.starts_with("pytorch_model")) {
        found = "; got " + name;
        break;
      }
    }
    throw Error(Fault::kData, "{}: no weights: wanted {} or {}{}; is the download complete?",
                folder.string(), kHfSingleName, kHfIndexName, found);
  }
  const std::map<std::string, std::string> index =
      parse_hf_index(read_regular_file(index_path, kLargestIndex), index_path.string());
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index) shards.insert(file);
  std::vector<std::string> missing;
  for (const std::string& shard : shards) {
    if (!present(folder / shard)) missing.push_back(shard);
  }
  if (!missing.empty()) {
    throw Error(Fault::kData, "{}: {} of {} shards are missing: {}; download them again",
                folder.string(), missing.size(), shards.size(), listed(missing));
  }
  for (const std::string& shard : shards) open(shard);
  compare(index);
}

void HfTensorFiles::open(const std::string& name) {
  check_huggingface_link(folder_ / name);
  const auto file =
      files_.emplace(name, std::make_unique<SafetensorsFile>(folder_ / name)).first->second.get();
  names_.push_back(name);
  for (const SafetensorsEntry& entry : file->entries()) {
    const auto [place, is_new] = tensors_.try_emplace(entry.name, HfTensor{file, &entry});
    if (!is_new) {
      throw Error(
          Fault::kData, "{}: {} is in {} and in {}; remove the file that is not of the model",
          folder_.string(), entry.name, place->second.file->path().filename().string(), name);
    }
  }
}

// Both ways: what the index does not know would be read all the same, or be of another download.
void HfTensorFiles::compare(const std::map<std::string, std::string>& index) const {
  for (const auto& [tensor, shard] : index) {
    const auto found = tensors_.find(tensor);
    if (found == tensors_.end() || found->second.file->path().filename() != shard) {
      throw Error(Fault::kData, "{}: it lacks {}, which {} says it has; download it again",
                  (folder_ / shard).string(), tensor, kHfIndexName);
    }
  }
  for (const auto& [name, tensor] : tensors_) {
    if (!index.contains(name)) {
      throw Error(Fault::kData, "{}: holds {}, which {} does not name; are the files of one model?",
                  tensor.file->path().string(), name, kHfIndexName);
    }
  }
}

}  // namespace piton
