#include "nn/adapters.h"

#include <algorithm>
#include <array>
#include <span>

namespace piton {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kExperts = ".experts.";

// Matrices of a block ("layers.3.attention") that can share A.
struct MatrixSet {
  std::string_view block;  // its last word that is no number
  std::string_view name;
  std::array<std::string_view, 6> names;  // of the matrices, then empty ones

  std::span<const std::string_view> matrices() const {
    return {names.begin(), std::ranges::find(names, "")};
  }
};

constexpr MatrixSet kSets[] = {
    {"attention", "qkv", {"query", "key", "value"}},
    {"attention", "query_gate", {"query", "gate"}},
    {"attention", "qkv_gate", {"query", "key", "value", "gate"}},
    {"mlp", "gate_up", {"gate", "up"}},
    {"shared", "gate_up", {"gate", "up"}},
    {"experts", "gate_up", {"gate", "up"}},
    {"delta", "qkv", {"query", "key", "value"}},
    {"delta", "qkv_gate", {"query", "key", "value", "gate"}},
    {"delta", "strength_decay", {"strength", "decay"}},
    {"delta", "input", {"query", "key", "value", "gate", "strength", "decay"}},
    {"mamba", "input", {"gate", "value", "key", "query", "step"}},
    {"short_conv", "input", {"input_gate", "output_gate", "value"}},
};

// "layers.3.attention.query" as the block and the rest.
struct NameInBlock {
  std::string_view block;
  std::string_view name;

  explicit NameInBlock(std::string_view all) : block(all), name(all) {
    const std::size_t dot = all.rfind('.');
    block = dot == all.npos ? "" : all.substr(0, dot);
    if (dot != all.npos) name = all.substr(dot + 1);
  }
  bool is_in(const MatrixSet& set) const {
    std::string_view words = block.substr(0, block.find_last_not_of(kDigits) + 1);
    if (words.ends_with('.') && words.size() < block.size()) words.remove_suffix(1);
    return words.substr(words.rfind('.') + 1) == set.block;
  }
  std::string other(std::string_view matrix) const {
    return std::string(block) + "." + std::string(matrix);
  }
};

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

std::vector<std::string> matrices_of(const std::string& adapter) {
  const NameInBlock whole(adapter);
  for (const MatrixSet& set : kSets) {
    if (set.name != whole.name || !whole.is_in(set)) continue;
    std::vector<std::string> matrices;
    for (const std::string_view matrix : set.matrices()) matrices.push_back(whole.other(matrix));
    return matrices;
  }
  return {adapter};
}

std::optional<std::string> adapter_of(const std::vector<std::string>& matrices) {
  if (matrices.size() == 1) return matrices[0];
  const NameInBlock first(matrices.at(0));
  for (const MatrixSet& set : kSets) {
    if (!first.is_in(set) || set.matrices().size() != matrices.size()) continue;
    const bool has_all = std::ranges::all_of(set.matrices(), [&](std::string_view matrix) {
      return std::ranges::count(matrices, first.other(matrix)) == 1;
    });
    if (has_all) return first.other(set.name);
  }
  return std::nullopt;
}

std::string adapter_of_expert(const std::string& adapter, std::int64_t expert) {
  const std::size_t at = adapter.find(kExperts);
  if (at == adapter.npos) return adapter;
  return adapter.substr(0, at + kExperts.size()) + std::to_string(expert) + "." +
         adapter.substr(at + kExperts.size());
}

std::string adapter_of_experts(const std::string& adapter) {
  const std::size_t at = adapter.find(kExperts);
  if (at == adapter.npos) return adapter;
  const std::size_t number = at + kExperts.size();
  const std::size_t end = adapter.find_first_not_of(kDigits, number);
  if (end == adapter.npos || end == number || adapter[end] != '.') return adapter;
  return adapter.substr(0, number) + adapter.substr(end + 1);
}

bool is_expert_adapter(const std::string& adapter) {
  return adapter_of_experts(adapter) != adapter;
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
