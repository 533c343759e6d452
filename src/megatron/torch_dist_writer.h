// Writes the folder of Megatron-core's dist_checkpointing (megatron/distributed/torch_dist.h),
// which any layout of Megatron loads.
//
//   DIR/__0_N.distcp    a box of one layer after another, each a file of torch.save
//   DIR/.metadata       where they are
//   DIR/common.pt       args (a namespace), iteration, checkpoint_version 3.0
//   DIR/metadata.json   written last: without it the folder is none
//
// Names and shapes are those of sharded_state_dict() of GPTModel, BertModel and T5Model with layers
// that are alike: a layer's tensors are one with a first dim more, and norms are in the linears
// that they precede, as in Transformer Engine. Its states ("_extra_state", which modules of
// Transformer Engine load) are there, and empty. A tied head is not there. What T5Model has under
// two names is stored once, and both names are at its place.
//
// Source: megatron/core of Megatron-core 0.16 (models/{gpt,bert,T5},
// transformer/transformer_block.py, dist_checkpointing/strategies/torch.py).
#pragma once

#include <filesystem>
#include <string>

#include "megatron/megatron_writer.h"

namespace piton {

// Throws Error(kData), beginning with `where`, for a model that the folder has no names for.
void check_torch_dist_holds(const ModelConfig& model, const std::string& where);

// Of `options`, layout.tensor, layout.pipeline and layout.padded_vocabulary are written into the
// arguments; the tensors are whole. Needs memory for a block and 300 bytes a box. Throws
// Error(kData) as write_megatron() does.
void write_torch_dist(const std::filesystem::path& folder, TensorSource& source,
                      const ModelConfig& model, const MegatronWriteOptions& options);

}  // namespace piton
