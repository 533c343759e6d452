// The four stages behind ShardedParameters::make: whole_gradients.cpp (0, 1), zero2.cpp, zero3.cpp.
#pragma once

#include <memory>
#include <vector>

#include "parallel/data_parallel.h"
#include "parallel/flat_values.h"
#include "parallel/reduction_groups.h"

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
// stand in buffers of their own.
class ResidentValues : public ShardedParameters {
 public:
  const FlatLayout& layout() const override { return layout_; }
  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) override;
  Tensor whole_value(Parameter& parameter, Stream& stream) override;
  void set_value(Parameter& parameter, const Tensor& rows, Stream& stream) override;
  void publish_values(Stream& stream) override;

 protected:
  // `shards`: 1, or one for each rank of the data group.
  ResidentValues(ShardingSetup setup, int shards, Stream& stream);

  ShardingSetup setup_;
  FlatLayout layout_;
  FlatLayout frozen_layout_;
  WholeValues values_;
  WholeValues frozen_values_;
  PackedForms forms_;
};

}  // namespace piton
