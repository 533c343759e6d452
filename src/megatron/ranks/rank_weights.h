// The weights of one rank, cut from whole ones.
#pragma once

#include "megatron/format/layout.h"
#include "megatron/format/optimizer_groups.h"

namespace piton {

struct RankWeights {
  BoxedTensors weights;    // under the keys of megatron_tensors()
  OrderedWeights ordered;  // in their order, which is about that of the modules
};

// A chunk of pipeline rank p, on tensor rank t.
struct RankChunk {
  int t = 0;
  int p = 0;
  int chunk = 0;
};

// What a rank of `layout` has of a chunk. `whole`: of the model, with the layers'
// numbers in it, rows as one tensor rank has them. Asserts that they are all there, in their
// shapes. Gate and up are one matrix here, as in modules.
RankWeights weights_of_rank(const BoxedTensors& whole, const ModelConfig& model,
                            const MegatronLayout& layout, RankChunk place);

}  // namespace piton
