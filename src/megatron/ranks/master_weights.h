// The optimizer's fp32 copies of weights, in the files of Megatron's optimizers.
#pragma once

#include <cstddef>
#include <vector>

#include "megatron/format/megatron_files.h"
#include "megatron/format/optimizer_groups.h"
#include "pickle/torch_file.h"

namespace piton {

// Float16OptimizerWithFloat16Params: `groups` (fp32_from_fp16_params) is a list of groups of
// parameters (megatron/format/optimizer_groups.h). Of one chunk of `chunks`. Empty where they are
// not of these weights.
BoxedTensors masters_of_groups(const TorchFile& file, const PickleValue& groups,
                               const std::vector<OrderedWeights>& chunks, std::size_t chunk);

// True if each 16-bit weight has a copy, of its shape, whose first elements round to its own. A
// wrong guess of what belongs to what does not pass for a copy.
bool are_masters(const BoxedTensors& masters, const OrderedWeights& weights);

// The same of one weight, of any type.
bool is_master(const BoxedTensor& master, const BoxedTensor& weight);

}  // namespace piton
