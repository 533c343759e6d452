#include "adapters/peft_writer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "adapters/merged_source.h"
#include "adapters/peft_source.h"
#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "huggingface/label_head.h"
#include "huggingface/places.h"
#include "model/label_head.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// The adapter of some rows of a module.
struct Part {
  HfPlace place;  // of its matrix
  std::string a;
  std::string b;
  std::string magnitude;
  AdapterShape shape;
  std::int64_t rows = 0;
};

struct Module {
  std::string name;  // "model.layers.0.self_attn.q_proj"
  std::vector<Part> parts;
  std::int64_t in = 0;
  std::int64_t out = 0;

  // Where the ranks of each A begin: those that several parts share are there once.
  std::map<std::string, std::int64_t> first_ranks() const {
    std::map<std::string, std::int64_t> first;
    std::int64_t sum = 0;
    for (const Part& part : parts) {
      if (first.emplace(part.a, sum).second) sum += part.shape.rank;
    }
    return first;
  }
  std::int64_t rank() const {
    std::int64_t end = 0;
    for (const Part& part : parts) end = std::max(end, first_ranks().at(part.a) + part.shape.rank);
    return end;
  }
  double scale() const { return parts[0].shape.scale; }
  bool has_magnitudes() const { return parts[0].shape.magnitude; }
  std::int64_t adapted_rows() const {
    std::int64_t sum = 0;
    for (const Part& part : parts) sum += part.rows;
    return sum;
  }
};

std::string without_weight(const std::string& name) {
  return name.substr(0, name.size() - std::string_view(".weight").size());
}

// The modules with an adapter, and the names of those of the same kind without one.
struct Modules {
  std::vector<Module> adapted;
  std::set<std::string> others;
};

Modules modules_of(const PeftWritten& written) {
  std::map<std::string, Part> parts;  // by canonical weight
  for (const auto& [linear, shape] : written.adapters.shapes) {
    for (const std::string& matrix : matrices_of(linear)) {
      parts[matrix + ".weight"] = {.a = linear + std::string(kAdapterA),
                                   .b = matrix + std::string(kAdapterB),
                                   .magnitude = matrix + std::string(kAdapterMagnitude),
                                   .shape = shape};
    }
  }
  const std::map<std::string, Shape> shapes = shapes_with_head(written.model);
  const auto sizes = hf_shapes(hf_places(written.family, written.model), written.model);
  std::map<std::string, Module> by_name;
  for (const HfPlace& place : hf_places(written.family, written.model)) {
    const Shape& shape = shapes.at(place.canonical);
    if (shape.ndim() != 2) continue;
    Module& module = by_name[place.name];
    module.name = without_weight(place.name);
    module.in = shape[1];
    module.out = sizes.at(place.name)[place.transposed ? 1 : 0];
    const auto found = parts.find(place.canonical);
    if (found == parts.end()) continue;
    Part part = found->second;
    part.place = place;
    part.rows = shape[0];
    module.parts.push_back(std::move(part));
    parts.erase(found);
  }
  PITON_ASSERT(parts.empty(), "{} is no linear of this model", parts.begin()->first);
  Modules modules;
  for (auto& [name, module] : by_name) {
    if (module.parts.empty()) {
      modules.others.insert(module.name);
      continue;
    }
    for (const Part& part : module.parts) {
      if (part.shape.scale == module.scale()) continue;
      throw Error(Fault::kUsage,
                  "adapter: {} and {} are one module in the files, {}, and have scales {} and {}; "
                  "wanted equal ones",
                  module.parts[0].b, part.b, module.name, module.scale(), part.shape.scale);
    }
    if (module.has_magnitudes() && module.adapted_rows() != module.out) {
      throw Error(Fault::kUsage,
                  "adapter: {} is a part of the module {} in the files, whose other rows have no "
                  "magnitude; with --use-dora wanted adapters of all of it, or of none",
                  module.parts[0].b, module.name);
    }
    modules.adapted.push_back(std::move(module));
  }
  return modules;
}

class Reader {
 public:
  explicit Reader(TensorSource& source) : source_(source) {
    for (const CanonicalTensor& one : source.tensors(TensorKind::kWeight)) tensors_[one.name] = one;
  }
  const CanonicalTensor& find(const std::string& name) const {
    const auto found = tensors_.find(name);
    if (found == tensors_.end())
      throw Error(Fault::kData, "{}: {} is missing; is the adapter whole?", source_.where(), name);
    return found->second;
  }
  Tensor read(const std::string& name) {
    const CanonicalTensor& tensor = find(name);
    Tensor values = host_tensor(tensor.dtype, tensor.shape);
    source_.read(name, whole_run(tensor.shape), tensor.dtype, values.raw());
    return values;
  }

 private:
  TensorSource& source_;
  std::map<std::string, CanonicalTensor> tensors_;
};

Tensor zeros(DType dtype, const Shape& shape) {
  Tensor tensor = host_tensor(dtype, shape);
  std::memset(tensor.raw(), 0, static_cast<std::size_t>(tensor.bytes()));
  return tensor;
}

// Copies rows of `from` to rows of `to`, from column `column` on. `row_of`: from one to the other.
template <typename RowOf>
void put_rows(const Tensor& to, const Tensor& from, std::int64_t column, RowOf&& row_of) {
  const std::int64_t width = size_bytes(from.dtype());
  for (std::int64_t row = 0; row < from.dim(0); ++row) {
    std::memcpy(to.raw() + (row_of(row) * to.dim(1) + column) * width,
                from.raw() + row * from.dim(1) * width,
                static_cast<std::size_t>(from.dim(1) * width));
  }
}

// [out], in the order of the module's rows.
Tensor magnitudes_of(const Module& module, Reader& reader) {
  const DType dtype = reader.find(module.parts[0].magnitude).dtype;
  const Tensor all = zeros(dtype, {module.out, 1});
  for (const Part& part : module.parts) {
    const Tensor from = reader.read(part.magnitude);
    if (from.shape() != Shape{part.rows} || from.dtype() != dtype) {
      throw Error(Fault::kData, "adapter: {} is {}, wanted [{}] of {}", part.magnitude,
                  to_string(from), part.rows, name(dtype));
    }
    put_rows(all, from.reshape({part.rows, 1}), 0,
             [&](std::int64_t row) { return stored_row(part.place, row); });
  }
  return all.reshape({module.out});
}

void add_module(const Module& module, Reader& reader, std::map<std::string, Tensor>& tensors) {
  const DType dtype = reader.find(module.parts[0].a).dtype;
  const Tensor a = zeros(dtype, {module.rank(), module.in});
  const Tensor b = zeros(dtype, {module.out, module.rank()});
  const std::map<std::string, std::int64_t> first_ranks = module.first_ranks();
  for (const Part& part : module.parts) {
    const std::int64_t first = first_ranks.at(part.a);
    const Tensor from_a = reader.read(part.a);
    const Tensor from_b = reader.read(part.b);
    if (from_a.shape() != Shape{part.shape.rank, module.in} ||
        from_b.shape() != Shape{part.rows, part.shape.rank} || from_a.dtype() != dtype ||
        from_b.dtype() != dtype) {
      throw Error(Fault::kData,
                  "adapter: {} is {} and {} is {}, wanted [{}, {}] and [{}, {}] of {}", part.a,
                  to_string(from_a), part.b, to_string(from_b), part.shape.rank, module.in,
                  part.rows, part.shape.rank, name(dtype));
    }
    put_rows(a, from_a, 0, [&](std::int64_t row) { return first + row; });
    put_rows(b, from_b, first, [&](std::int64_t row) { return stored_row(part.place, row); });
  }
  tensors[std::string(kPeftPrefix) + module.name + ".lora_A.weight"] = a;
  tensors[std::string(kPeftPrefix) + module.name + ".lora_B.weight"] = b;
  if (module.has_magnitudes()) {
    tensors[std::string(kPeftPrefix) + module.name + ".lora_magnitude_vector"] =
        magnitudes_of(module, reader);
  }
}

constexpr const char* kClassifier = "classifier";  // PEFT keeps an encoder's head as one module
constexpr const char* kTokenTable = "embedding.token.weight";

// A table that the head shares.
bool trains_tied_table(const PeftWritten& written) {
  return written.model.tied && written.model.labels == 0 &&
         written.adapters.trained.contains(kTokenTable);
}

// Where the tensors that are trained in full are in the files.
std::vector<HfPlace> trained_places(const PeftWritten& written) {
  std::vector<HfPlace> trained;
  const std::map<std::string, Shape> shapes = shapes_with_head(written.model);
  const auto sizes = hf_shapes(hf_places(written.family, written.model), written.model);
  for (const HfPlace& place : hf_places(written.family, written.model)) {
    if (!written.adapters.trained.contains(place.canonical)) continue;
    const auto shape = shapes.at(place.canonical).sizes();
    if (place.transposed || sizes.at(place.name) != std::vector(shape.begin(), shape.end())) {
      throw Error(Fault::kUsage,
                  "adapter: {} is a part of {} in the files, which cannot be trained in full alone",
                  place.canonical, place.name);
    }
    trained.push_back(place);
  }
  return trained;
}

// Adds the tensors that are trained in full. Returns their modules.
std::vector<std::string> add_trained(const PeftWritten& written, Reader& reader,
                                     std::map<std::string, Tensor>& tensors) {
  std::vector<std::string> modules;
  for (const HfPlace& place : trained_places(written)) {
    tensors[std::string(kPeftPrefix) + place.name] = reader.read(place.canonical);
    const bool of_classifier = place.name.starts_with(kClassifier);
    modules.push_back(of_classifier ? kClassifier : place.name.substr(0, place.name.rfind('.')));
  }
  if (trains_tied_table(written)) {
    // PEFT looks for the table under the name of the head too.
    for (const HfPlace& place : hf_places(written.family, written.model)) {
      if (place.canonical == "head.weight")
        tensors[std::string(kPeftPrefix) + place.name] = reader.read(kTokenTable);
    }
  }
  modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
  return modules;
}

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// Names for target_modules: the last part of a name if all modules with it are adapted, else all
// of the name.
std::set<std::string> targets_of(const Modules& modules) {
  std::set<std::string> others;
  for (const std::string& name : modules.others) others.insert(last_part(name));
  std::set<std::string> targets;
  for (const Module& module : modules.adapted) {
    const std::string last = last_part(module.name);
    targets.insert(others.contains(last) ? module.name : last);
  }
  return targets;
}

double alpha_of(const Module& module, bool rank_stabilized) {
  const auto rank = static_cast<double>(module.rank());
  return module.scale() * (rank_stabilized ? std::sqrt(rank) : rank);
}

// A whole number as one: PEFT's own configurations have integers.
Json number(double value) {
  const double whole = std::round(value);
  if (std::abs(value - whole) <= 1e-12 * std::abs(value)) return static_cast<std::int64_t>(whole);
  return value;
}

template <typename T>
T most_frequent(const std::vector<T>& values) {
  std::map<T, int> counts;
  for (const T& value : values) ++counts[value];
  return std::ranges::max_element(counts, {}, [](const auto& one) { return one.second; })->first;
}

Json config_of(const PeftWritten& written, const Modules& modules,
               const std::vector<std::string>& trained) {
  std::vector<std::int64_t> ranks;
  std::vector<Json> alphas;
  for (const Module& module : modules.adapted) {
    ranks.push_back(module.rank());
    alphas.push_back(number(alpha_of(module, written.rank_stabilized)));
  }
  const std::int64_t rank = most_frequent(ranks);
  const Json alpha = most_frequent(alphas);
  Json rank_pattern = Json::object();
  Json alpha_pattern = Json::object();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != rank) rank_pattern[modules.adapted[i].name] = ranks[i];
    if (alphas[i] != alpha) alpha_pattern[modules.adapted[i].name] = alphas[i];
  }
  const std::vector<HfPlace> places = hf_places(written.family, written.model);
  const bool conv = std::ranges::any_of(places, [](const HfPlace& one) { return one.transposed; });
  return {{"alpha_pattern", alpha_pattern},
          {"base_model_name_or_path", written.base.empty() ? Json() : Json(written.base)},
          {"bias", "none"},
          {"ensure_weight_tying", trains_tied_table(written)},
          {"fan_in_fan_out", conv},
          {"inference_mode", true},
          {"init_lora_weights", true},
          {"layers_pattern", nullptr},
          {"layers_to_transform", nullptr},
          {"lora_alpha", alpha},
          {"lora_dropout", written.adapters.dropout},
          {"modules_to_save", trained.empty() ? Json() : Json(trained)},
          {"peft_type", "LORA"},
          {"r", rank},
          {"rank_pattern", rank_pattern},
          {"revision", nullptr},
          {"target_modules", targets_of(modules)},
          {"task_type", written.model.labels > 0 ? kPeftLabelTask : "CAUSAL_LM"},
          {"use_dora", modules.adapted[0].has_magnitudes()},
          {"use_rslora", written.rank_stabilized}};
}

}  // namespace

void check_peft(const PeftWritten& written) {
  modules_of(written);
  trained_places(written);
}

void write_peft(const fs::path& folder, TensorSource& source, const PeftWritten& written) {
  const Modules modules = modules_of(written);
  Reader reader(source);
  std::map<std::string, Tensor> tensors;
  for (const Module& module : modules.adapted) add_module(module, reader, tensors);
  const std::vector<std::string> trained = add_trained(written, reader, tensors);
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if (const std::string problem = problem_of(written.model); !problem.empty())
    metadata[kPeftProblem] = problem;
  write_safetensors(folder / kPeftWeightsName, tensors, metadata);
  write_text_file(folder / kPeftConfigName, config_of(written, modules, trained).dump(2) + "\n");
}

}  // namespace piton
