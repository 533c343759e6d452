// Writes an adapter as a folder of PEFT: adapter_config.json and adapter_model.safetensors.
//
// Modules are those of the Hugging Face form of the model. One that holds several matrices has one
// A. If they have several adapters, or some of them none, the ranks of these are put next to each
// other: A is one above the other, B is zero outside of the rows and columns of each, and the
// module's rank and alpha are given in rank_pattern and alpha_pattern, so the product is the same.
// In the other direction, an adapter whose matrices are separate modules is written as one adapter
// for each, with equal A. Magnitudes (DoRA) are those of all rows of a module, so its
// matrices have adapters all or none.
#pragma once

#include <filesystem>
#include <string>

#include "checkpoint/tensor_source.h"
#include "huggingface/family.h"
#include "model/config.h"
#include "nn/adapters.h"

namespace piton {

struct PeftWritten {
  const ModelConfig& model;
  const HfFamily& family;
  const Adapters& adapters;
  std::string base;              // base_model_name_or_path: where PEFT finds the model; may be ""
  bool rank_stabilized = false;  // use_rslora; alpha follows from the scales
};

// Throws Error(kUsage) for adapters that a folder of PEFT cannot hold: matrices that are one module
// have adapters of different scales, or some of them magnitudes, or a part of a tensor of the files
// is trained in full.
void check_peft(const PeftWritten& written);

// Writes into `folder`, which must exist. `source` has the tensors of the adapter, and of what is
// trained in full; each keeps its type. Needs memory for all of them. Throws Error(kData) as the
// source does, and if the disk is full, and as check_peft().
void write_peft(const std::filesystem::path& folder, TensorSource& source,
                const PeftWritten& written);

}  // namespace piton
