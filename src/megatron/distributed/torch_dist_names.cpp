#include "megatron/distributed/torch_dist_names.h"

#include <fmt/format.h>

#include <cctype>

namespace piton {
namespace {

constexpr std::string_view kLayers = "layers.";

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

std::size_t place_of_layer(std::string_view name) {
  const std::size_t at = name.find(kLayers);
  if (at == name.npos || (at > 0 && name[at - 1] != '.')) return name.npos;
  const std::size_t place = at + kLayers.size();
  if (place >= name.size() || std::isdigit(static_cast<unsigned char>(name[place])) != 0)
    return name.npos;
  return place;
}

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

}  // namespace piton
