#include "ops/parameter.h"

#include <algorithm>
#include <utility>

namespace piton {

bool Parameter::is_matrix() const {
  return !is_table && shape.ndim() == 2 &&
         std::ranges::all_of(pieces, [](const Piece& piece) { return piece.global.ndim() == 2; });
}

Parameter& ParameterList::add(Parameter parameter) {
  PITON_ASSERT(find(parameter.name) == nullptr, "parameter {} is declared twice", parameter.name);
  parameter.chunk = chunk_;
  parameters_.push_back(std::make_unique<Parameter>(std::move(parameter)));
  return *parameters_.back();
}

Parameter& ParameterList::find_or_add(Parameter parameter) {
  Parameter* known = find(parameter.name);
  if (known == nullptr) return add(std::move(parameter));
  PITON_ASSERT(known->dtype == parameter.dtype && known->shape == parameter.shape &&
                   known->pieces.size() == parameter.pieces.size() &&
                   known->tied_stages == parameter.tied_stages,
               "parameter {} is declared in two ways", parameter.name);
  return *known;
}

Parameter* ParameterList::find(const std::string& name) const {
  for (const auto& parameter : parameters_) {
    if (parameter->name == name) return parameter.get();
  }
  return nullptr;
}

std::vector<Parameter*> ParameterList::all() const {
  std::vector<Parameter*> all;
  for (const auto& parameter : parameters_) all.push_back(parameter.get());
  return all;
}

std::int64_t ParameterList::elements() const {
  std::int64_t sum = 0;
  for (const auto& parameter : parameters_) sum += parameter->elements();
  return sum;
}

}  // namespace piton
