#include "model_files/gguf_adapter.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "adapters/peft_source.h"
#include "base/error.h"
#include "base/listed.h"
#include "checkpoint/regions.h"
#include "checkpoint/values.h"
#include "model/canonical_tensors.h"

namespace piton {
namespace {

constexpr std::string_view kA = ".lora_a";
constexpr std::string_view kB = ".lora_b";
constexpr std::string_view kWeight = ".weight";
constexpr const char* kTypeKey = "general.type";
constexpr const char* kAdapter = "adapter";
constexpr const char* kAlphaKey = "adapter.lora.alpha";

std::map<std::string, Shape> shapes_of(const ModelConfig& model) {
  std::map<std::string, Shape> shapes;
  for (const CanonicalShape& one : canonical_tensors(model)) shapes[one.name] = one.shape;
  return shapes;
}

// The places of the matrices of layers, by the tensor of the model's file.
std::map<std::string, std::vector<GgufPlace>> linears_of(const GgufArchitecture& architecture,
                                                         const ModelConfig& model) {
  const std::map<std::string, Shape> shapes = shapes_of(model);
  std::map<std::string, std::vector<GgufPlace>> linears;
  for (const GgufPlace& place : gguf_places(architecture, model)) {
    const auto shape = shapes.find(place.canonical);
    if (!place.canonical.starts_with("layers.") || shape == shapes.end()) continue;
    if (!place.canonical.ends_with(kWeight)) continue;  // filters of convolutions
    if (!place.values.empty()) continue;                // keys and values, one of them turned
    if (shape->second.ndim() == 2) linears[place.name].push_back(place);
  }
  return linears;
}

std::string word_of(const GgufFile& file, const char* key) {
  const GgufValue* const value = file.header().find(key);
  return value != nullptr && value->kind == GgufKind::kString ? value->text : "";
}

void check_is_adapter(const GgufFile& file) {
  if (word_of(file, kTypeKey) == kAdapter && word_of(file, "adapter.type") == "lora") return;
  throw Error(Fault::kData,
              "{}: is no adapter: wanted general.type \"adapter\" and adapter.type \"lora\", got "
              "\"{}\" and \"{}\"",
              file.where(), word_of(file, kTypeKey), word_of(file, "adapter.type"));
}

double alpha_of(const GgufFile& file) {
  const GgufValue* const value = file.header().find(kAlphaKey);
  const double alpha = value != nullptr && value->is_number() ? value->number() : -1;
  if (!(alpha >= 0) || !std::isfinite(alpha)) {
    throw Error(Fault::kData, "{}: {}: wanted a number of 0 or more", file.where(), kAlphaKey);
  }
  return alpha;
}

std::vector<float> values_in(const GgufFile& file, const GgufTensor& tensor) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
  file.file().read_at(file.offset(tensor), bytes);
  std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
  decode_blocks(tensor.type, bytes.data(), tensor.elements(), values.data());
  return values;
}

void check_shape(const GgufFile& file, const GgufTensor& tensor,
                 const std::vector<std::int64_t>& wanted) {
  if (tensor.shape == wanted) return;
  throw Error(Fault::kData, "{}: {} is [{}], wanted [{}]; is the adapter for another model?",
              file.where(), tensor.name, fmt::join(tensor.shape, ", "), fmt::join(wanted, ", "));
}

// Of experts, whose matrices are one tensor, how many there are; else 0. A place is that of one of
// them.
std::int64_t experts_of(const std::vector<GgufPlace>& places) {
  return places[0].stacked ? std::ssize(places) : 0;
}

// [experts, rows, columns], or without experts [rows, columns].
std::vector<std::int64_t> shape_of(std::int64_t experts, std::int64_t rows, std::int64_t columns) {
  if (experts == 0) return {rows, columns};
  return {experts, rows, columns};
}

// Where the columns of the adapted tensor are in another order in the file, so are those of A
// [rank, columns].
void change_columns(const std::vector<GgufPlace>& places, std::int64_t columns, std::span<float> a,
                    void (*change)(const TiledHeads&, std::span<float>)) {
  const std::optional<TiledHeads>& heads = places[0].tiled_columns;
  for (std::int64_t row = 0; heads && row < std::ssize(a); row += columns)
    change(*heads, a.subspan(static_cast<std::size_t>(row), static_cast<std::size_t>(columns)));
}

}  // namespace

bool is_gguf_adapter(const std::filesystem::path& path) {
  return word_of(GgufFile(path), kTypeKey) == kAdapter;
}

GgufAdapterSummary gguf_adapter_summary(const std::filesystem::path& path) {
  const GgufFile file(path);
  check_is_adapter(file);
  GgufAdapterSummary summary{.name = word_of(file, "general.name"),
                             .architecture = word_of(file, "general.architecture"),
                             .alpha = alpha_of(file),
                             .tensors = file.header().tensors};
  std::set<std::string> modules, targets;
  std::set<std::int64_t> ranks;
  for (const GgufTensor& tensor : summary.tensors) {
    summary.parameters += tensor.elements();
    if (!tensor.name.ends_with(kA)) continue;
    std::string module = tensor.name.substr(0, tensor.name.size() - kA.size());
    if (module.ends_with(kWeight)) module.resize(module.size() - kWeight.size());
    targets.insert(module.substr(module.rfind('.') + 1));
    modules.insert(std::move(module));
    ranks.insert(tensor.shape.size() > 1 ? *(tensor.shape.end() - 2) : 1);
  }
  summary.modules = std::ssize(modules);
  summary.targets.assign(targets.begin(), targets.end());
  summary.ranks.assign(ranks.begin(), ranks.end());
  return summary;
}

GgufAdapterSource::GgufAdapterSource(const std::filesystem::path& path, const ModelConfig& model) {
  const GgufFile file(path);
  where_ = file.where();
  check_is_adapter(file);
  alpha_ = alpha_of(file);
  const auto linears =
      linears_of(gguf_architecture(word_of(file, "general.architecture"), where_), model);
  std::map<std::string, Module> modules;
  std::vector<std::string> unknown;
  for (const GgufTensor& tensor : file.header().tensors) {
    const bool is_a = tensor.name.ends_with(kA);
    const bool is_b = tensor.name.ends_with(kB);
    const std::string name = tensor.name.substr(0, tensor.name.rfind('.'));
    if ((!is_a && !is_b) || !linears.contains(name)) {
      unknown.push_back(tensor.name);
      continue;
    }
    (is_a ? modules[name].a : modules[name].b) = &tensor;
  }
  if (!unknown.empty()) {
    throw Error(
        Fault::kData,
        "{}: tensors that are no adapter of a linear of this model ({}): {}; is the adapter "
        "for another model?",
        where_, unknown.size(), listed(unknown));
  }
  if (modules.empty()) throw Error(Fault::kData, "{}: has no adapters", where_);
  const std::map<std::string, Shape> shapes = shapes_of(model);
  for (const auto& [name, module] : modules)
    add_module(file, name, module, linears.at(name), shapes);
}

void GgufAdapterSource::add_module(const GgufFile& file, const std::string& name,
                                   const Module& module, const std::vector<GgufPlace>& places,
                                   const std::map<std::string, Shape>& shapes) {
  if (module.a == nullptr || module.b == nullptr) {
    throw Error(Fault::kData, "{}: {}{} is missing; is the copy complete?", where_, name,
                module.a == nullptr ? kA : kB);
  }
  const std::int64_t experts = experts_of(places);
  const std::int64_t in = shapes.at(places[0].canonical)[1];
  const std::int64_t rank = module.a->shape.size() > 1 ? *(module.a->shape.end() - 2) : 0;
  std::int64_t out = 0;
  std::vector<std::string> canonical;
  for (const GgufPlace& place : places) {
    out += shapes.at(place.canonical)[0];
    canonical.push_back(place.canonical);
  }
  const std::int64_t adapted = experts == 0 ? 1 : experts;
  check_shape(file, *module.a, shape_of(experts, rank, in));
  check_shape(file, *module.b, shape_of(experts, out / adapted, rank));
  std::vector<float> a = values_in(file, *module.a);
  change_columns(places, in, a, untile_columns);
  const std::vector<float> b = values_in(file, *module.b);
  const auto add_a = [&](const std::string& linear, std::int64_t number) {
    adapters_.shapes[linear] = {.rank = rank,
                                .scale = alpha_ > 0 ? alpha_ / static_cast<double>(rank) : 1};
    const auto first = a.begin() + number * rank * in;
    tensors_[linear + std::string(kAdapterA)] = {{rank, in}, {first, first + rank * in}};
  };
  if (experts == 0) {
    const std::optional<std::string> linear = adapter_of_weights(canonical);
    if (!linear) {
      throw Error(Fault::kData, "{}: has an adapter of {}; wanted adapters of linears", where_,
                  name);
    }
    add_a(*linear, 0);
  }
  for (const GgufPlace& place : places) {
    const std::int64_t rows = shapes.at(place.canonical)[0];
    const std::string matrix = place.canonical.substr(0, place.canonical.size() - kWeight.size());
    if (experts > 0) add_a(matrix, place.first / rows);
    std::vector<float> own;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto from = b.begin() + stored_row(place, row) * rank;
      own.insert(own.end(), from, from + rank);
    }
    tensors_[matrix + std::string(kAdapterB)] = {{rows, rank}, std::move(own)};
  }
}

std::vector<CanonicalTensor> GgufAdapterSource::tensors(TensorKind kind) const {
  std::vector<CanonicalTensor> list;
  if (kind != TensorKind::kWeight) return list;
  for (const auto& [name, held] : tensors_)
    list.push_back({.name = name, .dtype = DType::kF32, .shape = held.shape});
  return list;
}

void GgufAdapterSource::read(const std::string& name, const TensorRun& run, DType dtype,
                             std::byte* dst) {
  const Held& held = tensors_.at(name);
  for_each_stretch(held.shape, run, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    convert_values(reinterpret_cast<const std::byte*>(held.values.data() + from), DType::kF32,
                   dst + (to - run.begin) * size_bytes(dtype), dtype, count);
  });
}

namespace {

// The adapter of a matrix.
struct Factors {
  std::string a;
  std::string b;
  AdapterShape shape;
};

std::map<std::string, Factors> factors_of(const Adapters& adapters) {
  std::map<std::string, Factors> factors;  // by canonical weight
  for (const auto& [linear, shape] : adapters.shapes) {
    for (const std::string& matrix : matrices_of(linear)) {
      factors[matrix + std::string(kWeight)] = {linear + std::string(kAdapterA),
                                                matrix + std::string(kAdapterB), shape};
    }
  }
  return factors;
}

// Rank times scale, the same for all.
double common_alpha(const Adapters& adapters) {
  std::optional<double> alpha;
  for (const auto& [linear, shape] : adapters.shapes) {
    const double one = shape.scale * static_cast<double>(shape.rank);
    if (shape.magnitude) {
      throw Error(Fault::kUsage,
                  "adapter: {} has magnitudes (DoRA), which a GGUF file of adapters cannot hold; "
                  "write the merged model with --to gguf",
                  linear);
    }
    if (alpha && std::abs(*alpha - one) > 1e-6 * one) {
      throw Error(Fault::kUsage,
                  "adapter: {} has scale x rank {}, others have {}; a GGUF file of adapters holds "
                  "one; write the merged model with --to gguf",
                  linear, one, *alpha);
    }
    alpha = one;
  }
  return *alpha;
}

std::vector<float> all_values(TensorSource& source, const std::string& name, const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.elements()));
  source.read(name, whole_run(shape), DType::kF32, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

// Throws for parts of a tensor that have no adapter in common or, of experts, ranks that differ.
void check_parts(const std::string& name, const std::vector<GgufPlace>& places,
                 const std::vector<const Factors*>& parts) {
  const bool experts = places[0].stacked;
  for (const Factors* part : parts) {
    const bool fits = experts ? part->shape.rank == parts[0]->shape.rank : part->a == parts[0]->a;
    if (parts.size() == places.size() && fits) continue;
    throw Error(Fault::kUsage,
                "adapter: {} is a part of {} in a GGUF file, whose matrices have no adapter{}; "
                "write the merged model with --to gguf",
                part->b, name, experts ? " each of the same rank" : " in common");
  }
}

// Throws for linears whose adapters llama.cpp loads and does not use: those of latent attention
// before its output (its graph has plain products of them).
void check_used(const ModelConfig& model, const std::set<std::string>& weights) {
  if (!model.latent) return;
  for (const std::string& weight : weights) {
    if (weight.find(".attention.") == weight.npos || weight.ends_with(".output.weight")) continue;
    throw Error(Fault::kUsage,
                "adapter: {} is of latent attention, where llama.cpp uses adapters of the output "
                "alone; write the merged model with --to gguf",
                weight.substr(0, weight.size() - kWeight.size()));
  }
}

// A tensor of the file.
struct Stored {
  GgufTensor tensor;
  std::vector<float> values;
};

}  // namespace

void write_gguf_adapter(const std::filesystem::path& path, TensorSource& source,
                        const GgufAdapterWritten& written) {
  const Adapters& adapters = written.adapters;
  if (!adapters.trained.empty()) {
    throw Error(Fault::kUsage,
                "adapter: {} is trained in full (--lora-modules-to-save), which a GGUF file of "
                "adapters cannot hold; write the merged model with --to gguf",
                *adapters.trained.begin());
  }
  GgufHeader header{.entries = {{"general.architecture", GgufValue::string(written.architecture)},
                                {kTypeKey, GgufValue::string(kAdapter)},
                                {"general.name", GgufValue::string(written.name)},
                                {"adapter.type", GgufValue::string("lora")},
                                {kAlphaKey, GgufValue::f32(common_alpha(adapters))}}};
  const std::map<std::string, Factors> factors = factors_of(adapters);
  const std::map<std::string, Shape> shapes = shapes_of(written.model);
  std::set<std::string> left;
  for (const auto& [weight, one] : factors) left.insert(weight);
  check_used(written.model, left);
  std::vector<Stored> tensors;
  for (const auto& [name, places] :
       linears_of(gguf_architecture(written.architecture, ""), written.model)) {
    std::vector<const Factors*> parts;
    for (const GgufPlace& place : places) {
      const auto found = factors.find(place.canonical);
      if (found == factors.end()) continue;
      parts.push_back(&found->second);
      left.erase(place.canonical);
    }
    if (parts.empty()) continue;
    check_parts(name, places, parts);
    const std::int64_t experts = experts_of(places);
    const std::int64_t rank = parts[0]->shape.rank;
    const std::int64_t in = shapes.at(places[0].canonical)[1];
    const std::int64_t adapted = experts == 0 ? 1 : experts;
    std::int64_t out = 0;
    for (const GgufPlace& place : places) out += shapes.at(place.canonical)[0];
    std::vector<float> a(static_cast<std::size_t>(adapted * rank * in));
    std::vector<float> b(static_cast<std::size_t>(out * rank));
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::int64_t rows = shapes.at(places[i].canonical)[0];
      const std::int64_t number = experts == 0 ? 0 : places[i].first / rows;
      if (experts > 0 || i == 0)
        std::ranges::copy(all_values(source, parts[i]->a, {rank, in}),
                          a.begin() + number * rank * in);
      const std::vector<float> own = all_values(source, parts[i]->b, {rows, rank});
      for (std::int64_t row = 0; row < rows; ++row) {
        std::copy_n(own.begin() + row * rank, rank, b.begin() + stored_row(places[i], row) * rank);
      }
    }
    change_columns(places, in, a, tile_columns);
    tensors.push_back(
        {{.name = name + std::string(kA), .shape = shape_of(experts, rank, in)}, std::move(a)});
    tensors.push_back(
        {{.name = name + std::string(kB), .shape = shape_of(experts, out / adapted, rank)},
         std::move(b)});
  }
  if (!left.empty()) {
    throw Error(Fault::kUsage,
                "adapter: {} has no place in a GGUF file of adapters; write the merged model with "
                "--to gguf",
                *left.begin());
  }
  for (const Stored& one : tensors) header.tensors.push_back(one.tensor);
  GgufWriter out(path, std::move(header));
  for (const Stored& one : tensors) out.append(std::as_bytes(std::span(one.values)));
  out.commit();
}

}  // namespace piton
