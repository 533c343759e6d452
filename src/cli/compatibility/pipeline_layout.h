// Megatron-core's --pipeline-model-parallel-layout: which layers each chunk of a model has.
//
//   "Ett|(tt|)*2,tL"   E the embedding, t a transformer layer, L the head and its loss, m a layer
//                      that predicts further tokens; | ends a chunk, x*N and (...)*N repeat, commas
//                      mean nothing
//
// Chunk c of the model is on stage c mod p. Source: PipelineParallelLayerLayout of Megatron-core
// 0.16.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace piton::cli {

// Transformer layers of each chunk. Throws Error(kUsage) that names the flag if the text is no such
// layout, the embedding is not first or the loss not last, or a chunk has no transformer layer.
std::vector<std::int64_t> layers_of_layout(std::string_view layout);

}  // namespace piton::cli
