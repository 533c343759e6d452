// Writes a Megatron checkpoint from canonical tensors, for any number of tensor, pipeline and
// expert ranks.
//
//   DIR/latest_checkpointed_iteration.txt     "release"
//   DIR/release/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt   megatron/ranks/rank_folders.h
//     checkpoint_version 3.0, iteration, model (with virtual stages model0, model1, ...),
//     model_args (megatron/format/arguments.h)
//
// For DeepSpeed, as AscendSpeed's converters write it:
//
//   DIR/latest                                "release"
//   DIR/release/mp_rank_NN_model_states.pt    megatron/deepspeed/deepspeed_files.h: the model
//                                             is "module"; Bloom is a pipeline of
//                                             numbered layers
//
// These are read by torch.load(weights_only=True): they hold dicts, numbers, text and tensors, but
// for MegatronWriteOptions::arguments. For Megatron-core's dist_checkpointing:
//
//   DIR/latest_checkpointed_iteration.txt     "release"
//   DIR/release/                              megatron/torch_dist_writer.h
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/threads.h"
#include "checkpoint/tensor_source.h"
#include "megatron/format/arguments.h"
#include "megatron/format/layout.h"
#include "megatron/format/names.h"

namespace piton {

enum class MegatronForm { kRankFiles, kTorchDist, kDeepSpeed };

struct MegatronWriteOptions {
  MegatronLayout layout;  // checked
  MegatronForm form = MegatronForm::kRankFiles;
  // Of torch_dist, which has names of both kinds of layers, only kCore differs.
  MegatronTree tree = MegatronTree::kLegacy;
  std::optional<DType> dtype;  // of every tensor; else each stays as it is
  std::int64_t iteration = 0;
  std::string model_type;  // megatron/format/arguments.h
  // Also as a namespace "args", which torch.load(weights_only=True) refuses. torch_dist has them so
  // in any case.
  bool arguments = false;
  // Of torch_dist: a new file begins before one would be larger.
  std::int64_t max_file_bytes = 5'000'000'000;
  std::function<void(std::int64_t bytes)> wrote;  // called with the bytes of each block
  ThreadPool* threads = nullptr;  // reads while others write (checkpoint/assembly.h)

  MegatronArguments arguments_of(const ModelConfig& model) const {
    return {.model = model, .layout = layout, .model_type = model_type};
  }
};

// True if DeepSpeed's form of the model is a pipeline of numbered layers; only such a form is
// divided into stages.
bool is_deepspeed_pipeline(const ModelConfig& model);

// Writes into `folder`, which must exist. Needs memory for one block. Throws Error(kData) as the
// source does, for a model that the form has no names for, and if the disk is full.
void write_megatron(const std::filesystem::path& folder, TensorSource& source,
                    const ModelConfig& model, const MegatronWriteOptions& options);

}  // namespace piton
