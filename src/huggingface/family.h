// The model families of Hugging Face folders: for each, what its config.json means and where its
// tensors are. One small file of facts a family; the decoder is the same for all.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "huggingface/config_file.h"
#include "model/config.h"

namespace piton {

// Where a canonical tensor is in a tensor of the files, which is [out, in] (Linear) or, transposed,
// [in, out] (Conv1D). Row r of the canonical tensor is row
//
//   first + r                                      chunk 0
//   first + (r / chunk) * stride + r % chunk       else: heads of several matrices in turn
//
// of that tensor, or, where it is transposed, its column.
struct HfPlace {
  std::string canonical;
  std::string name;
  std::int64_t first = 0;
  std::int64_t chunk = 0;
  std::int64_t stride = 0;
  bool transposed = false;
};

struct HfFamily {
  std::vector<std::string> model_types;    // of config.json
  std::vector<std::string> architectures;  // that have this decoder and its head
  ModelConfig (*model)(const HfConfig& config);
  // One for each of canonical_tensors(model), in any order; with the head's also where it is tied.
  std::vector<HfPlace> (*places)(const ModelConfig& model);
  // The other way: keys of a config.json that model() reads as `model`, in the form of
  // Transformers 5, but for those that every family has (hf_config_of). Null: Piton reads the
  // family, and writes it only where it has read it. It need not look whether the family can hold
  // the model: hf_config_of reads the keys back and compares.
  nlohmann::ordered_json (*keys)(const ModelConfig& model) = nullptr;
  // Of names, which files of older versions have or lack: "transformer.", or "".
  std::string optional_prefix;
  // Ends of names of tensors that follow from the configuration: masks, angles.
  std::vector<std::string> ignored;
};

// All that are known.
std::vector<HfFamily> hf_families();

// By model_type. Throws Error(kData) naming the key where it is none of them, or where the
// architecture is another head than that of a language model.
HfFamily hf_family(const HfConfig& config);

// The model that config.json describes, checked. Weights are in the file's own type as far as Piton
// computes in it: bfloat16, else fp32. Throws Error(kData) naming file and key.
ModelConfig hf_model(const HfConfig& config);

}  // namespace piton
