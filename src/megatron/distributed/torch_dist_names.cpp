#include "megatron/distributed/torch_dist_names.h"

#include <fmt/format.h>

#include <cctype>
#include <utility>

namespace piton {
namespace {

constexpr std::string_view kLayers = "layers.";
// Of an expert by its number, and of all in one tensor; of modules (megatron/format/names.h).
constexpr std::string_view kExperts = "mlp.experts.experts.";
constexpr std::string_view kNumberedExperts = "mlp.experts.local_experts.";
constexpr std::string_view kGroupedExperts = "mlp.experts.";

bool is_digit(std::string_view name, std::size_t at) {
  return at < name.size() && std::isdigit(static_cast<unsigned char>(name[at])) != 0;
}

// The number of a stacked tensor's layer goes here; npos: it has none, or the name has it already.
std::size_t place_of_layer(std::string_view name) {
  const std::size_t at = name.find(kLayers);
  if (at == name.npos || (at > 0 && name[at - 1] != '.')) return name.npos;
  const std::size_t place = at + kLayers.size();
  return place >= name.size() || is_digit(name, place) ? name.npos : place;
}

// The usual name of a half of the first MLP matrix; any other name as it is.
std::string plain_name(const std::string& name) {
  constexpr std::string_view kBoth = "linear_fc1.";
  const std::size_t at = name.find(kBoth);
  if (at == name.npos) return name;
  const std::string end = name.substr(at + kBoth.size());
  if (end == "weight_w" || end == "bias_w")
    return name.substr(0, at) + "gate_proj." + end.substr(0, end.size() - 2);
  if (end == "weight_v" || end == "bias_v")
    return name.substr(0, at) + "up_proj." + end.substr(0, end.size() - 2);
  return name;
}

}  // namespace

bool is_state(std::string_view name) {
  return name.starts_with("optimizer.") || name.starts_with("optim.") ||
         name.starts_with("chained_") || name.starts_with("rng_state") ||
         name.starts_with("rerun_state");
}

std::string weight_of_state(const std::string& name, std::string_view kind) {
  const std::string state = fmt::format("optimizer.state.{}.", kind);
  const std::size_t at = name.find(state);
  // A chained optimizer has a number before.
  if (at == 0 || (at != name.npos && name.starts_with("chained_")))
    return name.substr(at + state.size());
  return "";
}

std::string weight_of_master(const std::string& name) {
  const std::string weight = weight_of_state(name, "fp32_param");
  return weight.empty() ? weight_of_state(name, "param") : weight;
}

StackedName::StackedName(std::string name) : name_(std::move(name)) {
  layers_ = place_of_layer(name_) != name_.npos;
  const std::size_t experts = name_.find(kExperts);
  experts_ = experts != name_.npos && !is_digit(name_, experts + kExperts.size());
}

std::string StackedName::at(std::span<const std::int64_t> place) const {
  std::string name = plain_name(name_);
  if (const std::size_t experts = name.find(kExperts); experts != name.npos) {
    name.replace(experts, kExperts.size(), experts_ ? kGroupedExperts : kNumberedExperts);
    if (experts_) name += fmt::format("{}", place.back());
  }
  if (layers_) name.insert(place_of_layer(name), fmt::format("{}.", place.front()));
  return name;
}

}  // namespace piton
