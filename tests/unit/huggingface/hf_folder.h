// A copy of a golden Hugging Face folder that a test may change.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/files/files.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "support/golden_huggingface.h"
#include "support/temp_folder.h"

namespace piton::test {

class HfFolder {
 public:
  explicit HfFolder(const std::string& golden) {
    write_text_file(path() / "config.json", read_text_file(golden_folder(golden) / "config.json"));
    const SafetensorsFile file(golden_folder(golden) / "model.safetensors");
    for (const SafetensorsEntry& entry : file.entries())
      tensors[entry.name] = file.tensor(entry.name);
    write();
  }

  const std::filesystem::path& path() const { return dir_.path(); }

  void edit_config(const std::function<void(nlohmann::ordered_json&)>& edit) {
    auto config = read_json<nlohmann::ordered_json>(read_text_file(path() / "config.json"));
    edit(config);
    write_text_file(path() / "config.json", config.dump());
  }

  // One file.
  void write() { write_safetensors(path() / "model.safetensors", tensors); }

  // Tensors in turn into `count` shards, and an index.
  void write_shards(int count) {
    std::filesystem::remove(path() / "model.safetensors");
    std::vector<std::map<std::string, Tensor>> shards(static_cast<std::size_t>(count));
    nlohmann::json index = {{"metadata", {{"total_size", 1}}},
                            {"weight_map", nlohmann::json::object()}};
    std::size_t number = 0;
    for (const auto& [name, tensor] : tensors) {
      const std::size_t shard = number++ % shards.size();
      shards[shard][name] = tensor;
      index["weight_map"][name] = shard_name(static_cast<int>(shard), count);
    }
    for (int i = 0; i < count; ++i)
      write_safetensors(path() / shard_name(i, count), shards[static_cast<std::size_t>(i)]);
    write_text_file(path() / "model.safetensors.index.json", index.dump());
  }

  static std::string shard_name(int index, int count) {
    return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, count);
  }

  std::map<std::string, Tensor> tensors;

 private:
  TempFolder dir_;
};

}  // namespace piton::test
