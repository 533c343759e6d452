// The four stages of ShardedParameters::make: whole_gradients.cpp (0, 1), zero2.cpp, zero3.cpp.
#pragma once

#include <memory>
#include <vector>

#include "parallel/data_parallel.h"
#include "parallel/reduction_groups.h"
#include "parallel/unit_values.h"

namespace piton {

// What every stage is made from.
struct ShardingSetup {
  std::vector<Parameter*> trainable;
  std::vector<Parameter*> frozen;
  ReductionGroups groups;
  Kernels& kernels;
  Device& device;
  Arena& arena;
};

std::unique_ptr<ShardedParameters> make_replicated(ShardingSetup setup, Stream& stream);
std::unique_ptr<ShardedParameters> make_zero1(ShardingSetup setup, Stream& stream);
std::unique_ptr<ShardedParameters> make_zero2(ShardingSetup setup, Stream& stream);
std::unique_ptr<ShardedParameters> make_zero3(ShardingSetup setup, Stream& stream);

// Stages 0 to 2: every rank holds all values, so a use is the resident weight. Frozen parameters
// are in buffers of their own.
class ResidentValues : public ShardedParameters {
 public:
  const std::vector<ShardUnit>& units() const override { return units_; }
  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) override;
  Tensor whole_value(Parameter& parameter, Stream& stream) override;
  void set_value(Parameter& parameter, const Tensor& rows, Stream& stream) override;
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
  PackedForms forms_;
};

}  // namespace piton
