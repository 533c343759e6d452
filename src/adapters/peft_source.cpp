#include "adapters/peft_source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "adapters/peft_modules.h"
#include "base/error.h"
#include "base/files/regular_file.h"
#include "base/listed.h"
#include "checkpoint/regions.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/values.h"
#include "huggingface/hf_source.h"
#include "huggingface/label_head.h"
#include "huggingface/places.h"
#include "huggingface/read_place.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kSaved = ".modules_to_save";
constexpr std::string_view kOriginal = ".original_module";
constexpr std::string_view kFactorA = ".lora_A";
constexpr std::string_view kFactorB = ".lora_B";
constexpr std::int64_t kLargestConfig = 16'000'000;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The module of "MODULE.lora_A.weight" or, as older versions write it, "MODULE.lora_A.NAME.weight".
std::optional<std::string> module_of(const std::string& name, std::string_view factor) {
  const std::size_t at = name.find(factor);
  if (at == std::string::npos || !name.ends_with(kWeight)) return std::nullopt;
  const std::size_t end = at + factor.size();
  const std::string_view adapter =
      std::string_view(name).substr(end, name.size() - kWeight.size() - end);
  if (!adapter.empty() && (adapter[0] != '.' || adapter.find('.', 1) != adapter.npos))
    return std::nullopt;
  return name.substr(0, at);
}

// The module of "MODULE.lora_magnitude_vector", with ".NAME" or ".weight" or both behind it in some
// versions.
std::optional<std::string> module_of_magnitude(const std::string& name) {
  constexpr std::string_view kMagnitude = ".lora_magnitude_vector";
  const std::size_t at = name.find(kMagnitude);
  if (at == std::string::npos) return std::nullopt;
  std::string_view rest = std::string_view(name).substr(at + kMagnitude.size());
  if (rest.ends_with(kWeight)) rest.remove_suffix(kWeight.size());
  if (!rest.empty() && (rest[0] != '.' || rest.find('.', 1) != rest.npos)) return std::nullopt;
  return name.substr(0, at);
}

// "MODULE.weight" of "MODULE.modules_to_save.default.weight", which may be of a part of the module.
std::string without_wrapper(const std::string& name) {
  const std::size_t at = name.find(kSaved);
  if (at == std::string::npos) return name;
  const std::string rest = name.substr(at + kSaved.size());  // ".default.weight", ".weight"
  return name.substr(0, at) + rest.substr(std::min(rest.find('.', 1), rest.rfind('.')));
}

// The places of the model by the name of their tensor, which may lack the optional prefix, or be
// that in a model with a vision part, or in the files.
class Places {
 public:
  Places(const std::vector<HfPlace>& places, const HfFamily& family)
      : family_(family), prefix_(family.optional_prefix) {
    for (const HfPlace& place : places) by_name_[place.name].push_back(place);
  }
  // The name of a module in a model without a vision part.
  std::string full_name(const std::string& stored) const {
    const std::string name = peft_name(family_, name_in_language_model(stored));
    return prefix_.empty() || name.starts_with(prefix_) ? name : prefix_ + name;
  }
  // Null: there is none.
  const std::vector<HfPlace>* find(const std::string& stored) const {
    const std::string name = peft_name(family_, name_in_language_model(stored));
    for (const std::string& full : {name, prefix_ + name}) {
      const auto found = by_name_.find(full);
      if (found != by_name_.end()) return &found->second;
    }
    return nullptr;
  }

 private:
  const HfFamily& family_;
  std::string prefix_;
  std::map<std::string, std::vector<HfPlace>> by_name_;
};

[[noreturn]] void wrong_shape(const HfTensor& tensor, const std::string& wanted) {
  throw Error(Fault::kData,
              "{}: {} is [{}], wanted {}; is the adapter of another model, or of another rank than "
              "{} says?",
              tensor.file->path().string(), tensor.name, fmt::join(tensor.shape, ", "), wanted,
              kPeftConfigName);
}

std::string stem(const std::string& weight) {
  PITON_ASSERT(weight.ends_with(kWeight), "{}", weight);
  return weight.substr(0, weight.size() - kWeight.size());
}

DType dtype_of(const HfTensor& stored) {
  const std::optional<DType> dtype = dtype_of_safetensors(stored.dtype);
  if (!dtype || *dtype == DType::kI64 || *dtype == DType::kI32 || *dtype == DType::kU8) {
    throw Error(Fault::kData, "{}: {} is of type {}, wanted F32, BF16, F16 or F64",
                stored.file->path().string(), stored.name, stored.dtype);
  }
  return *dtype;
}

// A matrix of the file, in host memory.
Tensor whole_values(const HfTensor& stored) {
  const Shape shape(stored.shape);
  Tensor values = host_tensor(dtype_of(stored), shape);
  read_place(
      {.file = *stored.file, .offset = stored.offset, .dtype = values.dtype(), .shape = shape}, {},
      whole_run(shape), values.dtype(), values.raw());
  return values;
}

// Whether these are the matrices of a linear: not of an embedding, the head or a norm.
bool is_linear(const std::vector<HfPlace>& places, const std::map<std::string, Shape>& shapes) {
  return std::ranges::all_of(places, [&](const HfPlace& place) {
    const bool is_there =
        place.canonical.starts_with("layers.") || place.canonical == "pooler.weight";
    return is_there && shapes.at(place.canonical).ndim() == 2;
  });
}

}  // namespace

bool is_peft_folder(const fs::path& folder) { return is_there(folder / kPeftConfigName); }

std::string read_peft_config(const fs::path& folder) {
  const fs::path config = folder / kPeftConfigName;
  check_huggingface_link(config, folder);
  return read_regular_file(config, kLargestConfig);
}

std::string peft_weights_name(const fs::path& folder) {
  for (const char* name : {kPeftWeightsName, kPeftPickledName}) {
    if (is_there(folder / name)) return name;
  }
  throw Error(Fault::kData, "{}: no weights of an adapter: wanted {} or {}; is the copy complete?",
              folder.string(), kPeftWeightsName, kPeftPickledName);
}

std::string without_peft_prefix(const std::string& name) {
  return name.starts_with(kPeftPrefix) ? name.substr(kPeftPrefix.size()) : name;
}

std::optional<std::string> peft_module_of(const std::string& tensor) {
  const std::string name = without_peft_prefix(tensor);
  for (const std::string_view factor : {kFactorA, kFactorB}) {
    if (const auto module = module_of(name, factor)) return module;
  }
  return module_of_magnitude(name);
}

std::int64_t labels_of_adapter(const fs::path& folder) {
  const HfConfig config(read_peft_config(folder), (folder / kPeftConfigName).string());
  if (config.word("task_type", "") != kPeftLabelTask) return 0;
  const HfTensorFiles files(folder, peft_weights_name(folder));
  for (const auto& [name, tensor] : files.tensors()) {
    if (is_label_rows(without_wrapper(without_peft_prefix(name))) && tensor.shape.size() == 2)
      return tensor.shape[0];
  }
  throw Error(Fault::kData,
              "{}: is of task_type {}, and the weights have no {}; is the copy complete?",
              config.where(), kPeftLabelTask, kHfLabelRows);
}

std::string problem_of_adapter(const fs::path& folder) {
  const HfConfig config(read_peft_config(folder), (folder / kPeftConfigName).string());
  const std::string said = config.word(kPeftProblem, "");
  const std::string weights = peft_weights_name(folder);
  if (!said.empty() || weights != kPeftWeightsName) return said;
  const SafetensorsFile file(folder / weights);
  const auto found = file.header().metadata.find(kPeftProblem);
  return found == file.header().metadata.end() ? "" : found->second;
}

std::optional<std::string> adapter_of_weights(const std::vector<std::string>& weights) {
  std::vector<std::string> matrices;
  for (const std::string& weight : weights) {
    if (!weight.ends_with(kWeight)) return std::nullopt;  // of a convolution
    matrices.push_back(weight.substr(0, weight.size() - kWeight.size()));
  }
  return adapter_of(matrices);
}

PeftSource::PeftSource(const fs::path& folder, const ModelConfig& model, const HfFamily& family)
    : files_(folder, peft_weights_name(folder)) {
  config_ = parse_peft_config(read_peft_config(folder), (folder / kPeftConfigName).string());
  adapters_.dropout = config_.dropout;
  read_tensors(model, family);
  check_tied(model);
}

void PeftSource::read_tensors(const ModelConfig& model, const HfFamily& family) {
  const std::vector<HfPlace> all_places = peft_places(family, model);
  const Places places(all_places, family);
  std::map<std::string, Module> modules;
  std::vector<std::string> unknown;
  for (const auto& [full, tensor] : files_.tensors()) {
    const std::string name = without_peft_prefix(full);
    if (name.find(kOriginal) != name.npos) continue;  // the model has it
    if (const auto a = module_of(name, kFactorA)) {
      modules[*a].a = &tensor;
    } else if (const auto b = module_of(name, kFactorB)) {
      modules[*b].b = &tensor;
    } else if (const auto magnitude = module_of_magnitude(name)) {
      modules[*magnitude].magnitude = &tensor;
    } else if (const std::vector<HfPlace>* whole = places.find(without_wrapper(name))) {
      add_whole(tensor, *whole, model);
    } else {
      unknown.push_back(full);
    }
  }
  const std::map<std::string, Shape> shapes = shapes_with_head(model);
  const std::vector<ExpertParameter> parameters = expert_parameters(all_places, model);
  const auto of_experts = modules_of_experts(parameters, [&](const ExpertParameter& one) {
    return config_.targets_parameter(one.path());
  });
  for (const auto& [name, module] : modules) {
    const auto parameter = of_experts.find(places.full_name(name));
    if (parameter != of_experts.end()) {
      check_parts(name, module);
      add_experts(*parameter->second, module, model.experts->experts);
      continue;
    }
    const std::vector<HfPlace>* found = places.find(name + std::string(kWeight));
    if (found == nullptr || !is_linear(*found, shapes)) {
      unknown.push_back(module.any().name);
      continue;
    }
    check_parts(name, module);
    add_module(name, module, *found, shapes);
  }
  if (!unknown.empty()) {
    throw Error(Fault::kData,
                "{}: tensors that are no adapter of a linear of this model, and no part of it "
                "({}): {}; is the adapter for another model?",
                where(), unknown.size(), listed(unknown));
  }
  if (adapters_.shapes.empty())
    throw Error(Fault::kData, "{}: no adapter: wanted tensors lora_A and lora_B", where());
}

void PeftSource::check_parts(const std::string& name, const Module& module) const {
  const char* missing = nullptr;
  if (config_.magnitudes && module.magnitude == nullptr) missing = "lora_magnitude_vector";
  if (module.b == nullptr) missing = "lora_B";
  if (module.a == nullptr) missing = "lora_A";
  if (missing != nullptr) {
    throw Error(Fault::kData, "{}: {} of {} is missing; is the copy complete?", where(), missing,
                name);
  }
  if (module.magnitude != nullptr && !config_.magnitudes) {
    throw Error(Fault::kData,
                "{}: has {}, but use_dora of {} is not true; do they belong together?", where(),
                module.magnitude->name, kPeftConfigName);
  }
}

void PeftSource::add_module(const std::string& name, const Module& module,
                            const std::vector<HfPlace>& places,
                            const std::map<std::string, Shape>& shapes) {
  const std::int64_t rank = config_.rank_of(name);
  const std::int64_t in = shapes.at(places[0].canonical)[1];
  std::int64_t out = 0;
  std::vector<std::string> canonical;
  for (const HfPlace& place : places) {
    out += shapes.at(place.canonical)[0];
    canonical.push_back(place.canonical);
  }
  const std::optional<std::string> adapted = adapter_of_weights(canonical);
  if (!adapted) {
    throw Error(Fault::kData, "{}: has an adapter of {}; wanted adapters of linears", where(),
                name);
  }
  if (module.a->shape != std::vector<std::int64_t>{rank, in})
    wrong_shape(*module.a, fmt::format("[{}, {}]", rank, in));
  if (module.b->shape != std::vector<std::int64_t>{out, rank})
    wrong_shape(*module.b, fmt::format("[{}, {}]", out, rank));
  const bool magnitudes = module.magnitude != nullptr;
  if (magnitudes && module.magnitude->shape != std::vector<std::int64_t>{out})
    wrong_shape(*module.magnitude, fmt::format("[{}]", out));
  const std::string& linear = *adapted;
  adapters_.shapes[linear] = {
      .rank = rank, .scale = config_.scale_of(name), .magnitude = magnitudes};
  add({.canonical = linear + std::string(kAdapterA)}, {rank, in}, *module.a);
  for (HfPlace place : places) {
    const std::int64_t rows = shapes.at(place.canonical)[0];
    const std::string matrix = stem(place.canonical);
    place.canonical = matrix + std::string(kAdapterB);
    place.transposed = false;  // PEFT's B is [out, r], also of a Conv1D
    add(place, {rows, rank}, *module.b);
    if (!magnitudes) continue;
    place.canonical = matrix + std::string(kAdapterMagnitude);
    add(place, {rows}, *module.magnitude);
  }
}

void PeftSource::add_whole(const HfTensor& stored, const std::vector<HfPlace>& places,
                           const ModelConfig& model) {
  const std::map<std::string, Shape> shapes = shapes_with_head(model);
  std::vector<std::int64_t> wanted;
  for (const HfPlace& place : places) {
    const Shape& shape = shapes.at(place.canonical);
    const std::int64_t rows = stored_row(place, shape[0] - 1) + 1;
    if (wanted.empty()) wanted.resize(static_cast<std::size_t>(shape.ndim()));
    std::int64_t& all = wanted[place.transposed ? 1 : 0];
    all = std::max(all, rows);
    if (shape.ndim() > 1) wanted[place.transposed ? 0 : 1] = shape[1];
  }
  const bool table =
      places[0].canonical == "embedding.token.weight" || places[0].canonical == "head.weight";
  const bool padded = table && stored.shape.size() == 2 && stored.shape[0] > wanted[0] &&
                      stored.shape[1] == wanted[1];
  if (stored.shape != wanted && !padded)
    wrong_shape(stored, fmt::format("[{}]", fmt::join(wanted, ", ")));
  for (const HfPlace& place : places) {
    adapters_.trained.insert(place.canonical);
    add(place, shapes.at(place.canonical), stored);
  }
}

void PeftSource::add_experts(const ExpertParameter& parameter, const Module& module,
                             std::int64_t experts) {
  const std::int64_t rank = config_.rank_of(parameter.path());
  const std::int64_t in = parameter.in, rows = parameter.rows, out = parameter.out();
  if (module.a->shape != std::vector<std::int64_t>{experts * rank, in})
    wrong_shape(*module.a, fmt::format("[{}, {}]", experts * rank, in));
  if (module.b->shape != std::vector<std::int64_t>{out, experts * rank})
    wrong_shape(*module.b, fmt::format("[{}, {}]", out, experts * rank));
  const Tensor b = whole_values(*module.b);
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const std::string adapter = parameter.adapter_of(expert);
    adapters_.shapes[adapter] = {.rank = rank, .scale = config_.scale_of(parameter.path())};
    add({.canonical = adapter + std::string(kAdapterA), .first = expert * rank}, {rank, in},
        *module.a);
    for (const std::string& matrix : parameter.matrices) {
      const Tensor own = host_tensor(b.dtype(), {rows, rank});
      const std::int64_t bytes = size_bytes(b.dtype());
      for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t i = 0; i < rank; ++i) {
          const std::int64_t from =
              (stored_row(parameter.places.at(matrix), row) * rank + i) * experts + expert;
          std::memcpy(own.raw() + (row * rank + i) * bytes, b.raw() + from * bytes,
                      static_cast<std::size_t>(bytes));
        }
      }
      add({.canonical = parameter.matrix_of(matrix, expert) + std::string(kAdapterB)}, {rows, rank},
          *module.b, own);
    }
  }
}

void PeftSource::add(const HfPlace& place, const Shape& shape, const HfTensor& stored,
                     const Tensor& values) {
  const DType dtype = dtype_of(stored);
  if (!places_
           .try_emplace(
               place.canonical,
               Place{place, CanonicalTensor{place.canonical, dtype, shape}, stored, values})
           .second)
    throw Error(Fault::kData, "{}: {} is there twice, under two names", where(), stored.name);
}

// A head that the model shares with its embedding is trained with it, or not at all.
void PeftSource::check_tied(const ModelConfig& model) {
  constexpr const char* kHead = "head.weight";
  constexpr const char* kTable = "embedding.token.weight";
  if (!model.tied || model.labels > 0) return;
  const auto table = places_.find(kTable);
  const auto head = places_.find(kHead);
  bool one = table == places_.end() ? head == places_.end() : config_.ties_trained_weights;
  if (table != places_.end() && head != places_.end()) {
    const TensorRun all = whole_run(table->second.tensor.shape);
    const auto hash = [&](const Place& place) {
      return hash_of_run(
          {*place.stored.file, place.stored.offset, place.tensor.dtype, Shape(place.stored.shape)},
          all);
    };
    one = hash(table->second) == hash(head->second);
  }
  if (!one) {
    throw Error(Fault::kData,
                "{}: trains the embedding or the head alone, and in this model they are one table; "
                "wanted ensure_weight_tying, or a model with two tables",
                where());
  }
  if (head == places_.end()) return;
  places_.erase(head);
  adapters_.trained.erase(kHead);
}

std::vector<CanonicalTensor> PeftSource::tensors(TensorKind kind) const {
  std::vector<CanonicalTensor> result;
  if (kind != TensorKind::kWeight) return result;
  for (const auto& [name, place] : places_) result.push_back(place.tensor);
  return result;
}

void PeftSource::read(const std::string& name, const TensorRun& run, DType dtype, std::byte* dst) {
  const Place& place = places_.at(name);
  if (run.begin >= run.end) return;
  if (place.values.defined()) {
    for_each_stretch(place.tensor.shape, run,
                     [&](std::int64_t from, std::int64_t to, std::int64_t count) {
                       convert_values(place.values.raw() + from * size_bytes(place.tensor.dtype),
                                      place.tensor.dtype,
                                      dst + (to - run.begin) * size_bytes(dtype), dtype, count);
                     });
    return;
  }
  const HfTensor& stored = place.stored;
  read_place({.file = *stored.file,
              .offset = stored.offset,
              .dtype = place.tensor.dtype,
              .shape = Shape(stored.shape)},
             place.place, run, dtype, dst);
}

}  // namespace piton
