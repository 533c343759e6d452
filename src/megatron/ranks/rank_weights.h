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

// What a rank of `layout` has of a chunk. `whole`: of the model, as the one rank of `stored` has
// them. Throws Error(kData) with the key of a tensor that is missing there.
RankWeights weights_of_rank(const BoxedTensors& whole, const MegatronLayout& stored,
                            const ModelConfig& model, const MegatronLayout& layout,
                            RankChunk place);

}  // namespace piton
