#include "adapters/peft_experts.h"

#include <fmt/format.h>

#include <string_view>

namespace piton {
namespace {

constexpr std::string_view kNumber = ".experts.0.";  // of the first expert, in files
constexpr std::string_view kOlder = ".block_sparse_moe";
constexpr std::string_view kNewer = ".mlp";

// The module and the name of the parameter of Transformers 5 that has the matrix at this place, of
// the first expert.
std::pair<std::string, std::string> parameter_at(const HfPlace& place, bool is_last,
                                                 const ModelConfig& model) {
  const std::size_t number = place.name.find(kNumber);
  if (place.stacks > 0 || number == std::string::npos) {
    const std::size_t dot = place.name.rfind('.');
    return {place.name.substr(0, dot), place.name.substr(dot + 1)};
  }
  std::string module = place.name.substr(0, number);
  if (module.ends_with(kOlder)) {
    module.resize(module.size() - kOlder.size());
    module += kNewer;
  }
  const char* const first = model.gated ? "gate_up_proj" : "up_proj";
  return {module + ".experts", is_last ? "down_proj" : first};
}

}  // namespace

std::string ExpertParameter::matrix_of(const std::string& matrix, std::int64_t expert) const {
  return fmt::format("{}.{}.{}", canonical, expert, matrix);
}

std::string ExpertParameter::adapter_of(std::int64_t expert) const {
  return matrix_of(matrices.size() > 1 ? "gate_up" : matrices[0], expert);
}

std::vector<ExpertParameter> expert_parameters(const std::vector<HfPlace>& places,
                                               const ModelConfig& model) {
  std::vector<ExpertParameter> all;
  std::map<std::string, const HfPlace*> by_canonical;
  for (const HfPlace& place : places) by_canonical[place.canonical] = &place;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    if (!model.has_experts(layer)) continue;
    const std::string canonical = fmt::format("layers.{}.mlp.experts", layer);
    for (const char* matrix : {"gate", "up", "down"}) {
      const auto found = by_canonical.find(fmt::format("{}.0.{}.weight", canonical, matrix));
      if (found == by_canonical.end()) continue;
      const HfPlace& place = *found->second;
      const bool is_last = std::string_view(matrix) == "down";
      const auto [module, name] = parameter_at(place, is_last, model);
      if (all.empty() || all.back().module != module || all.back().name != name) {
        const std::int64_t width = model.expert_ffn_hidden();
        all.push_back({.module = module,
                       .name = name,
                       .canonical = canonical,
                       .in = is_last ? width : model.hidden,
                       .rows = is_last ? model.hidden : width});
      }
      ExpertParameter& parameter = all.back();
      parameter.places[matrix] = place.stacks > 0 ? place : HfPlace{.first = parameter.out()};
      parameter.matrices.emplace_back(matrix);
    }
  }
  return all;
}

bool joins_experts(const std::vector<HfPlace>& places, const ModelConfig& model) {
  if (!model.experts) return false;
  for (const HfPlace& place : places) {
    if (place.stacks == 0 && place.name.find(kNumber) != std::string::npos) return true;
  }
  return false;
}

}  // namespace piton
