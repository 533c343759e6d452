// The weights of one rank, cut from whole ones.
#pragma once

#include "megatron/layout.h"
#include "megatron/optimizer_groups.h"

namespace piton {

struct RankWeights {
  BoxedTensors weights;    // under the keys of megatron_tensors()
  OrderedWeights ordered;  // in their order, which is about that of the modules
};

// What rank (t, p) of `layout` has of chunk `chunk`. `whole`: of the model, with the layers'
// numbers in it, rows as one tensor rank has them. Asserts that they are all there, in their
// shapes. Gate and up are one matrix here, as in modules.
RankWeights weights_of_rank(const BoxedTensors& whole, const ModelConfig& model,
                            const MegatronLayout& layout, int t, int p, int chunk);

}  // namespace piton
