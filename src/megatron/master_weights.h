// The optimizer's fp32 copies of 16-bit weights, in the files of Megatron's optimizers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatron/megatron_files.h"
#include "pickle/torch_file.h"

namespace piton {

// A weight under its key, in the order in which the model has its parameters.
using OrderedWeights = std::vector<std::pair<std::string, const BoxedTensor*>>;

// Float16OptimizerWithFloat16Params: `groups` (fp32_from_fp16_params) is a list of groups of
// parameters, of which one decays matrices and one keeps vectors; each is in the model's order.
// Empty where they are not of these weights.
BoxedTensors masters_of_groups(const TorchFile& file, const PickleValue& groups,
                               const OrderedWeights& weights);

// DistributedOptimizer, whose first data-parallel rank keeps one vector ("param") of all
// parameters in the reverse of the model's order. They begin at multiples of 64 elements, or one
// right behind another. Empty where they are not of these weights.
BoxedTensors masters_of_buffer(const TorchFile& file, const PickleValue& vector,
                               const OrderedWeights& weights);

// True if each 16-bit weight has a copy, of its shape, whose first elements round to its own. A
// wrong guess of what belongs to what does not pass for a copy.
bool are_masters(const BoxedTensors& masters, const OrderedWeights& weights);

}  // namespace piton
