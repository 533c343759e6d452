// The files of an optimizer that keeps each parameter's state by itself: Megatron's FP32Optimizer
// and Float16OptimizerWithFloat16Params, and the counts of all optimizers.
//
//   {"state": {NUMBER: {"exp_avg": TENSOR, "exp_avg_sq": TENSOR, "step": ...}},
//    "param_groups": [{"params": [NUMBER, ...], "step": ...}, ...]}
//
// Nothing is named. A group has matrices, which decay, or vectors, which do not; each in the order
// of the model's parameters, of all chunks of a rank one after another.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "megatron/format/megatron_files.h"
#include "pickle/torch_file.h"

namespace piton {

// A weight under its key, in the order in which the model has its parameters.
using OrderedWeights = std::vector<std::pair<std::string, const BoxedTensor*>>;

// The order of weights in groups.
class GroupOrder {
 public:
  struct Place {
    std::size_t chunk = 0;
    std::string key;
    const BoxedTensor* weight = nullptr;
  };
  // `chunks`: the weights of each chunk. `narrow_alone`: only those of 16 bits.
  GroupOrder(const std::vector<OrderedWeights>& chunks, bool narrow_alone);
  // The next matrix or vector in the order, as `like` is one. Its key is empty where none is left.
  Place next(const BoxedTensor& like);

 private:
  std::deque<Place> matrices_;
  std::deque<Place> vectors_;
};

// The values of a dict whose keys are numbers; the last of equal ones counts.
std::map<std::int64_t, const PickleValue*> by_number(const PickleValue& dict);

// The state of torch's optimizer in what a Megatron optimizer saved; null if it has none.
const PickleValue* torch_optimizer(const PickleValue& saved);

// The moments of each chunk. `optimizer`: of torch_optimizer(). Throws Error(kData) with the number
// of a parameter that has none, or whose shape is not that of the weight in its place.
std::vector<BoxedMoments> moments_of_groups(const TorchFile& file, const PickleValue& optimizer,
                                            const std::vector<OrderedWeights>& chunks);

// Adds all values of "step" and "common_step" in what an optimizer saved, but those of groups
// without parameters, which do not count on; and the "grad_scaler" of fp16.
void add_counts(const TorchFile& file, const PickleValue& saved, OptimizerCounts& counts);
// `scaler`: DynamicGradScaler.state_dict(); or another dict, which adds nothing.
void add_loss_scale(const TorchFile& file, const PickleValue& scaler, OptimizerCounts& counts);

}  // namespace piton
