#include "huggingface/hf_writer.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "checkpoint/assembly.h"
#include "checkpoint/safetensors.h"
#include "huggingface/places.h"
#include "huggingface/reward_head.h"
#include "huggingface/tensor_files.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<TypedAssembly> written_tensors(const TensorSource& source, const ModelConfig& model,
                                           const HfFamily& family, std::optional<DType> dtype) {
  std::map<std::string, DType> stored;
  for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
    stored[one.name] = one.dtype;
  std::vector<TypedAssembly> tensors;
  for (Assembly& assembly : hf_assemblies(hf_places(family, model), model)) {
    const DType type = dtype.value_or(dtype_of(assembly, stored));
    tensors.push_back({std::move(assembly), type});
  }
  return tensors;
}

std::vector<std::vector<TypedAssembly>> in_shards(std::vector<TypedAssembly> tensors,
                                                  std::int64_t max_bytes) {
  std::vector<std::vector<TypedAssembly>> shards(1);
  std::int64_t bytes = 0;
  for (TypedAssembly& tensor : tensors) {
    if (bytes > 0 && bytes + tensor.bytes() > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.bytes();
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

void write_shard(const fs::path& path, TensorSource& source,
                 const std::vector<TypedAssembly>& tensors, const HfWriteOptions& options) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, const TypedAssembly*> by_name;
  for (const TypedAssembly& tensor : tensors) {
    const auto sizes = tensor.assembly.shape.sizes();
    entries.push_back({.name = tensor.assembly.name,
                       .dtype = std::string(safetensors_name(tensor.dtype)),
                       .shape = {sizes.begin(), sizes.end()}});
    by_name[tensor.assembly.name] = &tensor;
  }
  sort_for_alignment(entries);
  SafetensorsWriter writer(path, std::move(entries));
  std::vector<TypedAssembly> in_order;
  for (const SafetensorsEntry& entry : writer.entries())
    in_order.push_back(*by_name.at(entry.name));
  assemble(source, in_order, options.threads, [&](std::size_t, std::span<const std::byte> bytes) {
    writer.append(bytes);
    if (options.wrote) options.wrote(static_cast<std::int64_t>(bytes.size()));
  });
  writer.commit();
}

void write_json(const fs::path& path, const Json& json) {
  write_text_file(path, json.dump(2) + "\n");
}

// The type of most of the weights.
DType main_dtype(const std::vector<TypedAssembly>& tensors) {
  std::map<DType, std::int64_t> elements;
  for (const TypedAssembly& one : tensors) elements[one.dtype] += one.assembly.shape.elements();
  return std::ranges::max_element(elements, {}, [](const auto& one) { return one.second; })->first;
}

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return "bfloat16";
    case DType::kF16:
      return "float16";
    case DType::kF64:
      return "float64";
    default:
      return "float32";
  }
}

}  // namespace

void write_huggingface(const fs::path& folder, TensorSource& source, HfWrittenModel written,
                       const HfWriteOptions& options) {
  const ModelConfig& model = written.model;
  Json& config = written.config;
  std::vector<TypedAssembly> tensors =
      written_tensors(source, model, written.family, options.dtype);
  // "dtype" as in Transformers 5; configurations of Transformers 4 keep "torch_dtype".
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] =
      torch_name(main_dtype(tensors));
  config["tie_word_embeddings"] = model.tied;

  const std::vector<std::vector<TypedAssembly>> shards =
      in_shards(std::move(tensors), options.max_shard_bytes);
  if (shards.size() == 1) {
    write_shard(folder / kHfSingleName, source, shards[0], options);
  } else {
    std::int64_t elements = 0;
    std::int64_t bytes = 0;
    std::map<std::string, std::string> names;
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::string name =
          fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
      for (const TypedAssembly& tensor : shards[i]) {
        names[tensor.assembly.name] = name;
        elements += tensor.assembly.shape.elements();
        bytes += tensor.bytes();
      }
      write_shard(folder / name, source, shards[i], options);
    }
    write_json(folder / kHfIndexName,
               {{"metadata", {{"total_parameters", elements}, {"total_size", bytes}}},
                {"weight_map", names}});
  }
  write_json(folder / "config.json", config);
}

}  // namespace piton
