// The four stages of ShardedParameters::make: whole_gradients.cpp (0, 1), zero2.cpp, zero3.cpp.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "parallel/data_parallel.h"
#include "parallel/reduction_groups.h"
#include "parallel/unit_values.h"

namespace piton {

// The common arguments of the constructors of all stages.
struct ShardingSetup {
  std::vector<Parameter*> trainable;
  std::vector<Parameter*> frozen;
  ReductionGroups groups;
  Kernels& kernels;
  Device& device;
  Arena& arena;
  CutPolicy cut = CutPolicy::kEven;
  FrozenForms frozen_forms = FrozenForms::kFewest;
};

std::unique_ptr<ShardedParameters> make_replicated(ShardingSetup setup, Stream& stream);
std::unique_ptr<ShardedParameters> make_zero1(ShardingSetup setup, Stream& stream);
std::unique_ptr<ShardedParameters> make_zero2(ShardingSetup setup, Stream& stream);
std::unique_ptr<ShardedParameters> make_zero3(ShardingSetup setup, Stream& stream);

// This rank's spans of `units`, with its parts of their gradients and values.
template <typename Gradients, typename Values>
std::vector<OwnedSpan> owned_parts(const std::vector<ShardUnit>& units, const Gradients& gradients,
                                   const Values& values) {
  std::vector<OwnedSpan> owned;
  for (const ShardSpan& span : owned_spans(units)) {
    const ShardUnit& unit = units[span.unit];
    const bool cut = unit.parts > 1 && unit.cut == CutPolicy::kEven && unit.entries.size() == 1;
    owned.push_back({.span = span,
                     .gradient = gradients.part(span),
                     .value = values.part(span),
                     .ranks = cut ? unit.group->values : nullptr,
                     .part = cut ? unit.part_size() : 0});
  }
  return owned;
}

// The part of each parameter that this rank stores.
class OwnParts {
 public:
  // Adds this rank's parts of `units`, whose values are in `values` (WholeValues or ShardValues).
  template <typename Values>
  void add(const std::vector<ShardUnit>& units, const Values& values) {
    for (const ShardSpan& span : owned_spans(units))
      parts_[span.parameter] = {span.parameter_offset, values.part(span)};
  }
  // Empty if this rank's part has no elements of the parameter.
  OwnValues of(const Parameter& parameter) const {
    const auto found = parts_.find(&parameter);
    return found == parts_.end() ? OwnValues() : found->second;
  }

 private:
  std::map<const Parameter*, OwnValues> parts_;
};

// Stages 0 to 2: every rank holds all values, so acquire() gathers nothing. Frozen parameters are
// in separate buffers.
class ResidentValues : public ShardedParameters {
 public:
  const std::vector<ShardUnit>& units() const override { return units_; }
  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) override;
  Tensor whole_value(Parameter& parameter, Stream& stream) override;
  OwnValues own_values(Parameter& parameter) override;
  void publish_values(Stream& stream) override;

 protected:
  // `sharded`: each rank updates its parts; else every rank updates everything.
  ResidentValues(ShardingSetup setup, bool sharded, Stream& stream);

  ShardingSetup setup_;
  bool sharded_;
  std::vector<ShardUnit> units_;
  std::vector<ShardUnit> frozen_units_;
  WholeValues values_;
  WholeValues frozen_values_;
  OwnParts own_;
  PackedForms forms_;
};

}  // namespace piton
