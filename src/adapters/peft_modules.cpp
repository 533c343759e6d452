#include "adapters/peft_modules.h"

#include <algorithm>

#include "base/error.h"
#include "huggingface/label_head.h"

namespace piton {
namespace {

std::string without_weight(const std::string& name) {
  return name.substr(0, name.size() - std::string_view(".weight").size());
}

// Throws if an expert has another rank or scale than the first one, or no adapter.
void check_alike(const PeftExperts& of) {
  for (std::size_t i = 0; i < of.experts.size(); ++i) {
    const PeftModule& one = of.experts[i];
    if (!one.parts.empty() && !of.experts[0].parts.empty() && one.rank() == of.experts[0].rank() &&
        one.scale() == of.experts[0].scale() && !one.has_magnitudes())
      continue;
    throw Error(Fault::kUsage,
                "adapter: {} has not the rank and scale of expert 0, or no adapter, or a magnitude "
                "(DoRA), and a folder of PEFT has one adapter for all experts of {}; write the "
                "merged model with --to hf",
                of.parameter.matrix_of(of.parameter.matrices[0], static_cast<std::int64_t>(i)),
                of.parameter.path());
  }
}

// Throws if the parts of a module have several scales.
void check_scales(const PeftModule& module) {
  for (const PeftPart& part : module.parts) {
    if (part.shape.scale == module.scale()) continue;
    throw Error(Fault::kUsage,
                "adapter: {} and {} are one module in the files, {}, and have scales {} and {}; "
                "wanted equal ones",
                module.parts[0].b, part.b, module.name, module.scale(), part.shape.scale);
  }
}

// Takes the adapters of experts out of `parts`.
void add_experts(const PeftWritten& written, const std::vector<HfPlace>& places,
                 std::map<std::string, PeftPart>& parts, PeftModules& modules) {
  const std::vector<ExpertParameter> parameters = expert_parameters(places, written.model);
  std::set<std::string> weights;  // without the numbers of experts
  for (const auto& [weight, part] : parts) weights.insert(adapter_of_experts(weight));
  const auto is_adapted = [&](const ExpertParameter& one) {
    return std::ranges::any_of(one.matrices, [&](const std::string& matrix) {
      return weights.contains(one.canonical + "." + matrix + ".weight");
    });
  };
  const auto adapted = modules_of_experts(parameters, is_adapted);
  std::set<const ExpertParameter*> found;
  for (const auto& [name, parameter] : adapted) {
    found.insert(parameter);
    PeftExperts of{.parameter = *parameter, .name = name};
    for (std::int64_t expert = 0; expert < written.model.experts->experts; ++expert) {
      PeftModule module{.name = parameter->path(), .in = parameter->in, .out = parameter->out()};
      for (const std::string& matrix : parameter->matrices) {
        const auto part = parts.find(parameter->matrix_of(matrix, expert) + ".weight");
        if (part == parts.end()) continue;
        part->second.place = parameter->places.at(matrix);
        part->second.rows = parameter->rows;
        module.parts.push_back(std::move(part->second));
        parts.erase(part);
      }
      of.experts.push_back(std::move(module));
    }
    check_alike(of);
    for (const PeftModule& one : of.experts) check_scales(one);
    modules.of_experts.push_back(std::move(of));
  }
  for (const ExpertParameter& one : parameters) {
    if (!found.contains(&one)) modules.other_parameters.insert(one.path());
  }
}

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

// The last part of each name if all with it are adapted, else all of the name.
std::set<std::string> short_names(const std::vector<std::string>& adapted,
                                  const std::set<std::string>& others,
                                  std::string (*last)(const std::string&)) {
  std::set<std::string> last_of_others;
  for (const std::string& name : others) last_of_others.insert(last(name));
  std::set<std::string> names;
  for (const std::string& name : adapted)
    names.insert(last_of_others.contains(last(name)) ? name : last(name));
  return names;
}

// "experts.down_proj".
std::string last_parts(const std::string& parameter) {
  const std::size_t dot = parameter.rfind('.');
  return parameter.substr(parameter.rfind('.', dot - 1) + 1);
}

// Whether PEFT has to get the module as a parameter: its name would mean experts
// (joins_experts()). PEFT has no lengths of parameters.
bool is_written_as_parameter(const PeftModule& module) {
  return module.parts[0].place.canonical.find(".mlp.") != std::string::npos &&
         !module.has_magnitudes();
}

}  // namespace

std::string peft_name(const HfFamily& family, const std::string& name) {
  const std::string& beginning = family.file_beginning;
  if (beginning.empty() || !name.starts_with(beginning)) return name;
  return family.module_beginning + name.substr(beginning.size());
}

std::vector<HfPlace> peft_places(const HfFamily& family, const ModelConfig& model) {
  std::vector<HfPlace> places = hf_places(family, model);
  for (HfPlace& place : places) place.name = peft_name(family, place.name);
  return places;
}

PeftModules peft_modules_of(const PeftWritten& written) {
  std::map<std::string, PeftPart> parts;  // by canonical weight
  for (const auto& [linear, shape] : written.adapters.shapes) {
    for (const std::string& matrix : matrices_of(linear)) {
      parts[matrix + ".weight"] = {.a = linear + std::string(kAdapterA),
                                   .b = matrix + std::string(kAdapterB),
                                   .magnitude = matrix + std::string(kAdapterMagnitude),
                                   .shape = shape};
    }
  }
  const std::vector<HfPlace> places = peft_places(written.family, written.model);
  PeftModules modules;
  add_experts(written, places, parts, modules);
  const std::map<std::string, Shape> shapes = shapes_with_head(written.model);
  const auto sizes = hf_shapes(places, written.model);
  std::map<std::string, PeftModule> by_name;
  for (const HfPlace& place : places) {
    const Shape& shape = shapes.at(place.canonical);
    if (shape.ndim() != 2 || is_expert_adapter(place.canonical)) continue;
    PeftModule& module = by_name[place.name];
    module.name = without_weight(place.name);
    module.in = shape[1];
    module.out = sizes.at(place.name)[place.transposed ? 1 : 0];
    const auto found = parts.find(place.canonical);
    if (found == parts.end()) continue;
    PeftPart part = found->second;
    part.place = place;
    part.rows = shape[0];
    module.parts.push_back(std::move(part));
    parts.erase(found);
  }
  PITON_ASSERT(parts.empty(), "{} is no linear of this model", parts.begin()->first);
  for (auto& [name, module] : by_name) {
    if (module.parts.empty()) {
      modules.others.insert(module.name);
      continue;
    }
    check_scales(module);
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

PeftTargets peft_targets_of(const PeftWritten& written, const PeftModules& modules) {
  const bool joined = joins_experts(peft_places(written.family, written.model), written.model);
  PeftTargets targets;
  std::vector<std::string> adapted, parameters;
  for (const PeftModule& module : modules.adapted) {
    const bool as_parameter = joined && is_written_as_parameter(module);
    (as_parameter ? parameters : adapted).push_back(module.name + (as_parameter ? ".weight" : ""));
    targets.named.emplace_back((as_parameter ? parameters : adapted).back(), &module);
  }
  targets.modules = short_names(adapted, modules.others, last_part);
  targets.parameters.insert(parameters.begin(), parameters.end());
  std::vector<std::string> of_experts;
  for (const PeftExperts& one : modules.of_experts) {
    of_experts.push_back(one.parameter.path());
    targets.named.emplace_back(of_experts.back(), &one.experts[0]);
  }
  targets.parameters.merge(short_names(of_experts, modules.other_parameters, last_parts));
  return targets;
}

}  // namespace piton
