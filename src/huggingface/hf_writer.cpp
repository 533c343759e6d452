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
#include "huggingface/files/compressed_tensors.h"
#include "huggingface/files/tensor_files.h"
#include "huggingface/label_head.h"
#include "huggingface/places.h"
#include "model/label_head.h"
#include "nn/expert_mlp.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A tensor of the model, and those of the file that hold it.
struct WrittenTensor {
  TypedAssembly typed;
  std::vector<SafetensorsEntry> entries;
  bool coded = false;

  std::int64_t bytes() const {
    if (!coded) return typed.bytes();
    std::int64_t sum = 0;
    for (const SafetensorsEntry& entry : entries) {
      std::int64_t elements = 1;
      for (const std::int64_t size : entry.shape) elements *= size;
      const std::optional<DType> dtype = dtype_of_safetensors(entry.dtype);
      sum += elements * (dtype ? size_bytes(*dtype) : 1);
    }
    return sum;
  }
};

// The name of the module that a weight belongs to.
std::string module_of(const std::string& weight) {
  constexpr std::string_view kEnd = ".weight";
  PITON_ASSERT(weight.ends_with(kEnd), "{}", weight);
  return weight.substr(0, weight.size() - kEnd.size());
}

// `sizes`: in the file.
WrittenTensor written_tensor(TypedAssembly typed, bool coded, std::vector<std::int64_t> sizes,
                             const std::optional<IntegerFormat>& codes) {
  WrittenTensor tensor{.typed = std::move(typed), .coded = coded};
  const Assembly& assembly = tensor.typed.assembly;
  if (coded) {
    tensor.entries = compressed_entries(*codes, module_of(assembly.name), sizes[0], sizes[1]);
  } else {
    tensor.entries = {{.name = assembly.name,
                       .dtype = std::string(safetensors_name(tensor.typed.dtype)),
                       .shape = std::move(sizes)}};
  }
  return tensor;
}

std::vector<WrittenTensor> written_tensors(const TensorSource& source, const ModelConfig& model,
                                           const HfFamily& family, const HfWriteOptions& options) {
  std::map<std::string, DType> stored;
  for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight))
    stored[one.name] = one.dtype;
  const std::vector<HfPlace> places = hf_places(family, model);
  const std::map<std::string, std::vector<std::int64_t>> sizes = hf_shapes(places, model);
  std::vector<WrittenTensor> tensors;
  for (Assembly& assembly : hf_assemblies(places, model)) {
    const bool bias = is_choice_bias(assembly.parts.front().name);  // fp32 for Transformers too
    const DType type = bias ? DType::kF32 : options.dtype.value_or(dtype_of(assembly, stored));
    std::vector<std::int64_t> shape = sizes.at(assembly.name);
    const bool coded =
        options.codes && shape.size() == 2 && source.stored_format(assembly.parts.front().name);
    tensors.push_back(
        written_tensor({std::move(assembly), type}, coded, std::move(shape), options.codes));
  }
  return tensors;
}

std::vector<std::vector<WrittenTensor>> in_shards(std::vector<WrittenTensor> tensors,
                                                  std::int64_t max_bytes) {
  std::vector<std::vector<WrittenTensor>> shards(1);
  std::int64_t bytes = 0;
  for (WrittenTensor& tensor : tensors) {
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
                 const std::vector<WrittenTensor>& tensors, const HfWriteOptions& options) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, const WrittenTensor*> by_name;
  for (const WrittenTensor& tensor : tensors) {
    for (const SafetensorsEntry& entry : tensor.entries) {
      by_name[entry.name] = &tensor;
      entries.push_back(entry);
    }
  }
  sort_for_alignment(entries);
  SafetensorsWriter writer(path, std::move(entries));
  const auto take = [&](std::span<const std::byte> bytes) {
    writer.append(bytes);
    if (options.wrote) options.wrote(static_cast<std::int64_t>(bytes.size()));
  };
  std::vector<TypedAssembly> plain;  // that follow each other
  const auto assemble_plain = [&] {
    assemble(source, plain, options.threads,
             [&](std::size_t, std::span<const std::byte> bytes) { take(bytes); });
    plain.clear();
  };
  for (const SafetensorsEntry& entry : writer.entries()) {
    const WrittenTensor& tensor = *by_name.at(entry.name);
    if (!tensor.coded) {
      plain.push_back(tensor.typed);
      continue;
    }
    assemble_plain();
    write_compressed(source, *options.codes, tensor.typed.assembly, entry, take);
  }
  assemble_plain();
  writer.commit();
}

// Modules with a matrix that is not written as codes: Linear ones for other programs.
std::vector<std::string> modules_as_they_are(const HfFamily& family, const ModelConfig& model) {
  std::vector<std::string> modules;
  for (const HfPlace& place : hf_places(family, model)) {
    if (place.canonical == "head.weight" || place.canonical == label_tensor(model) ||
        (is_router_tensor(place.canonical) && !is_choice_bias(place.canonical)))
      modules.push_back(module_of(place.name));
  }
  return modules;
}

void write_json(const fs::path& path, const Json& json) {
  write_text_file(path, json.dump(2) + "\n");
}

// The type of most of the weights that are no codes, or else of the scales.
DType main_dtype(const std::vector<WrittenTensor>& tensors, const HfWriteOptions& options) {
  std::map<DType, std::int64_t> elements;
  for (const WrittenTensor& one : tensors) {
    const DType dtype = one.coded ? options.codes->scale : one.typed.dtype;
    elements[dtype] += one.typed.assembly.shape.elements();
  }
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
  std::vector<WrittenTensor> tensors = written_tensors(source, model, written.family, options);
  // "dtype" as in Transformers 5; configurations of Transformers 4 keep "torch_dtype".
  config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] =
      torch_name(main_dtype(tensors, options));
  config["tie_word_embeddings"] = model.tied;
  if (options.codes) {
    config[kQuantizationKey] =
        quantization_config(*options.codes, modules_as_they_are(written.family, model));
  }

  const std::vector<std::vector<WrittenTensor>> shards =
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
      for (const WrittenTensor& tensor : shards[i]) {
        for (const SafetensorsEntry& entry : tensor.entries) names[entry.name] = name;
        elements += tensor.typed.assembly.shape.elements();
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
