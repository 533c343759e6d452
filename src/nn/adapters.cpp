#include "nn/adapters.h"

#include <algorithm>

namespace piton {
namespace {

template <typename Condition>
std::vector<Parameter*> those(const std::vector<Parameter*>& parameters, Condition&& condition) {
  std::vector<Parameter*> list;
  for (Parameter* parameter : parameters) {
    if (condition(*parameter)) list.push_back(parameter);
  }
  return list;
}

}  // namespace

const AdapterShape* Adapters::find(const std::string& name) const {
  const auto found = shapes.find(name);
  return found != shapes.end() ? &found->second : nullptr;
}

bool Adapters::train(const Parameter& parameter) const {
  if (!given() || is_adapter_tensor(parameter.name)) return true;
  return std::ranges::all_of(parameter.pieces,
                             [&](const Piece& piece) { return trained.contains(piece.name); });
}

void Adapters::freeze(const std::vector<Parameter*>& parameters) const {
  for (Parameter* parameter : parameters) {
    parameter->trainable = train(*parameter);
    // PEFT's groups: vectors have the rate of B.
    if (given() && (parameter->name.ends_with(kAdapterB) || parameter->shape.ndim() == 1))
      parameter->rate_group = RateGroup::kAdapterOutputs;
  }
}

std::string choice_prefix(std::size_t choice) { return "choice " + std::to_string(choice) + ": "; }

bool is_adapter_tensor(std::string_view name) {
  return name.ends_with(kAdapterA) || name.ends_with(kAdapterB) ||
         name.ends_with(kAdapterMagnitude);
}

std::vector<Parameter*> base_parameters(const std::vector<Parameter*>& parameters) {
  return those(parameters, [](const Parameter& one) { return !is_adapter_tensor(one.name); });
}

std::vector<Parameter*> adapter_parameters(const std::vector<Parameter*>& parameters) {
  return those(parameters, [](const Parameter& one) { return is_adapter_tensor(one.name); });
}

std::vector<Parameter*> magnitude_parameters(const std::vector<Parameter*>& parameters) {
  return those(parameters,
               [](const Parameter& one) { return one.name.ends_with(kAdapterMagnitude); });
}

std::vector<Parameter*> trained_parameters(const std::vector<Parameter*>& parameters,
                                           const Adapters& adapters) {
  return those(parameters, [&](const Parameter& one) { return adapters.train(one); });
}

std::vector<Parameter*> choice_parameters(const std::vector<Parameter*>& parameters,
                                          std::size_t choice) {
  const std::string prefix = choice_prefix(choice);
  return those(parameters, [&](const Parameter& one) { return one.name.starts_with(prefix); });
}

}  // namespace piton
