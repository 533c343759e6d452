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
#include "adapters/peft_modules.h"
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
Tensor magnitudes_of(const PeftModule& module, Reader& reader) {
  const DType dtype = reader.find(module.parts[0].magnitude).dtype;
  const Tensor all = zeros(dtype, {module.out, 1});
  for (const PeftPart& part : module.parts) {
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

// A and B of a module.
std::pair<Tensor, Tensor> factors_of(const PeftModule& module, Reader& reader) {
  const DType dtype = reader.find(module.parts[0].a).dtype;
  const Tensor a = zeros(dtype, {module.rank(), module.in});
  const Tensor b = zeros(dtype, {module.out, module.rank()});
  const std::map<std::string, std::int64_t> first_ranks = module.first_ranks();
  for (const PeftPart& part : module.parts) {
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
  return {a, b};
}

void add_module(const PeftModule& module, Reader& reader, std::map<std::string, Tensor>& tensors) {
  const auto [a, b] = factors_of(module, reader);
  tensors[std::string(kPeftPrefix) + module.name + ".lora_A.weight"] = a;
  tensors[std::string(kPeftPrefix) + module.name + ".lora_B.weight"] = b;
  if (module.has_magnitudes()) {
    tensors[std::string(kPeftPrefix) + module.name + ".lora_magnitude_vector"] =
        magnitudes_of(module, reader);
  }
}

void add_experts(const PeftExperts& of, Reader& reader, std::map<std::string, Tensor>& tensors) {
  const std::int64_t rank = of.experts[0].rank();
  const auto experts = static_cast<std::int64_t>(of.experts.size());
  const DType dtype = reader.find(of.experts[0].parts[0].a).dtype;
  const Tensor all_a = zeros(dtype, {experts * rank, of.parameter.in});
  const Tensor all_b = zeros(dtype, {of.parameter.out(), rank * experts});
  for (std::int64_t expert = 0; expert < experts; ++expert) {
    const auto [a, b] = factors_of(of.experts[static_cast<std::size_t>(expert)], reader);
    PITON_ASSERT(a.dtype() == dtype, "{}: experts of two types", of.name);
    put_rows(all_a, a, 0, [&](std::int64_t row) { return expert * rank + row; });
    const std::int64_t bytes = size_bytes(dtype);
    for (std::int64_t i = 0; i < b.elements(); ++i) {
      std::memcpy(all_b.raw() + (i * experts + expert) * bytes, b.raw() + i * bytes,
                  static_cast<std::size_t>(bytes));
    }
  }
  tensors[std::string(kPeftPrefix) + of.name + ".lora_A.weight"] = all_a;
  tensors[std::string(kPeftPrefix) + of.name + ".lora_B.weight"] = all_b;
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
  const auto sizes = hf_shapes(peft_places(written.family, written.model), written.model);
  for (const HfPlace& place : peft_places(written.family, written.model)) {
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
    for (const HfPlace& place : peft_places(written.family, written.model)) {
      if (place.canonical == "head.weight")
        tensors[std::string(kPeftPrefix) + place.name] = reader.read(kTokenTable);
    }
  }
  modules.erase(std::unique(modules.begin(), modules.end()), modules.end());
  return modules;
}

double alpha_of(const PeftModule& module, bool rank_stabilized) {
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

Json config_of(const PeftWritten& written, const PeftModules& modules,
               const std::vector<std::string>& trained) {
  const PeftTargets targets = peft_targets_of(written, modules);
  std::vector<std::int64_t> ranks;
  std::vector<Json> alphas;
  for (const auto& [name, module] : targets.named) {
    ranks.push_back(module->rank());
    alphas.push_back(number(alpha_of(*module, written.rank_stabilized)));
  }
  const std::int64_t rank = most_frequent(ranks);
  const Json alpha = most_frequent(alphas);
  Json rank_pattern = Json::object();
  Json alpha_pattern = Json::object();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] != rank) rank_pattern[targets.named[i].first] = ranks[i];
    if (alphas[i] != alpha) alpha_pattern[targets.named[i].first] = alphas[i];
  }
  const std::vector<HfPlace> places = peft_places(written.family, written.model);
  const bool conv = std::ranges::any_of(
      places, [](const HfPlace& one) { return one.transposed && one.stacks == 0; });
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
          // Which PEFT refuses for parameters, and does not need.
          {"lora_dropout", targets.parameters.empty() ? written.adapters.dropout : 0.0},
          {"modules_to_save", trained.empty() ? Json() : Json(trained)},
          {"peft_type", "LORA"},
          {"r", rank},
          {"rank_pattern", rank_pattern},
          {"revision", nullptr},
          {"target_modules", targets.modules},
          {"target_parameters", targets.parameters.empty() ? Json() : Json(targets.parameters)},
          {"task_type", written.model.labels > 0 ? kPeftLabelTask : "CAUSAL_LM"},
          {"use_dora", !modules.adapted.empty() && modules.adapted[0].has_magnitudes()},
          {"use_rslora", written.rank_stabilized}};
}

}  // namespace

void check_peft(const PeftWritten& written) {
  peft_modules_of(written);
  trained_places(written);
}

void write_peft(const fs::path& folder, TensorSource& source, const PeftWritten& written) {
  const PeftModules modules = peft_modules_of(written);
  Reader reader(source);
  std::map<std::string, Tensor> tensors;
  for (const PeftModule& module : modules.adapted) add_module(module, reader, tensors);
  for (const PeftExperts& one : modules.of_experts) add_experts(one, reader, tensors);
  const std::vector<std::string> trained = add_trained(written, reader, tensors);
  std::map<std::string, std::string> metadata{{"format", "pt"}};
  if (const std::string problem = problem_of(written.model); !problem.empty())
    metadata[kPeftProblem] = problem;
  write_safetensors(folder / kPeftWeightsName, tensors, metadata);
  write_text_file(folder / kPeftConfigName, config_of(written, modules, trained).dump(2) + "\n");
}

}  // namespace piton
