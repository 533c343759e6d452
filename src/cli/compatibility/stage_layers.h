// Megatron's and MindSpeed's ways to give the stages of a pipeline unequal numbers of layers, as
// --num-layers and --manual-layers:
//
//   --noop-layers 0,7                        places of --num-layers that hold no layer
//   --decoder-first-pipeline-num-layers N    layers of the first stage; the others share the rest
//   --decoder-last-pipeline-num-layers N     of the last stage
//   --account-for-embedding-in-pipeline-split, --account-for-loss-in-pipeline-split
//                                            the embedding, or the head and its loss, count as a
//                                            layer of their chunk
//   --pipeline-model-parallel-layout "Et|tt|tL"   each chunk (pipeline_layout.h)
//
// Source: get_num_layers_to_build and get_transformer_layer_offset of Megatron-core 0.16.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "base/options/options.h"
#include "cli/compatibility/megatron_flags.h"
#include "parallel/parallel_options.h"

namespace piton::cli {

struct StageLayers {
  std::int64_t layers = 0;  // of the model, with those that do nothing
  int stages = 1;
  int chunks_of_stage = 1;          // chunk c of the model is on stage c mod stages
  std::vector<std::int64_t> given;  // of each chunk, by --manual-layers; empty: none
  std::set<std::int64_t> noops;     // places below `layers`
  std::int64_t first = 0;           // of the first stage; 0: not given
  std::int64_t last = 0;
  bool counts_embedding = false;
  bool counts_loss = false;
};

// Layers of each chunk of the model, without those that do nothing. Throws Error(kUsage) naming the
// flag if they do not divide, or if a chunk would have none.
std::vector<std::int64_t> layers_of_chunks(const StageLayers& wanted);

// Sets --num-layers and --manual-layers as the flags ask; nothing without them. Throws as
// layers_of_chunks().
void read_stage_layers(const MegatronFlags& given, OptionSet& set, ParallelOptions& parallel,
                       const ModelOptions& model);

}  // namespace piton::cli
