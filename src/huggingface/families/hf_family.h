// A model family of Hugging Face folders: how it reads its config.json, and where its tensors are.
// One small file of facts per family; the decoder is the same for all.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "huggingface/files/config_file.h"
#include "model/config.h"

namespace piton {

// Where a canonical tensor is inside of a tensor of the files. The latter is [out, in] (Linear) or,
// if transposed, [in, out] (Conv1D). Row r of the canonical tensor is row
//
//   first + r                                      chunk 0
//   first + (r / chunk) * stride + r % chunk       else: heads of several matrices interleaved
//
// of that tensor, or its column if it is transposed. A tensor of `stacks` matrices one upon another
// ([stacks, rows, in]) counts their rows through all. If it is transposed ([stacks, in, out]), the
// column is that of matrix number `matrix`; and a transposed vector is in row `matrix` of a tensor
// [stacks, out].
struct HfPlace {
  std::string canonical;
  std::string name;
  std::int64_t first = 0;
  std::int64_t chunk = 0;
  std::int64_t stride = 0;
  bool transposed = false;
  std::int64_t stacks = 0;  // 0: one matrix, or a vector
  std::int64_t matrix = 0;  // of a transposed one
};

// The key of DeepSeek-V3 that says how many layers after the last one predict later tokens.
inline constexpr const char* kLaterLayers = "num_nextn_predict_layers";

struct HfFamily {
  std::vector<std::string> model_types;    // of config.json
  std::vector<std::string> architectures;  // that have this decoder and its head
  ModelConfig (*model)(const HfConfig& config);
  // One for each of canonical_tensors(model), in any order; the head's too, even if it is tied.
  std::vector<HfPlace> (*places)(const ModelConfig& model);
  // The inverse of model(): keys of a config.json, in the form of Transformers 5, without those
  // that every family has (hf_config_of). Null: Piton reads the family, and writes it only if it
  // has read it. Need not check whether the family can represent the model: hf_config_of reads the
  // keys back and compares.
  nlohmann::ordered_json (*keys)(const ModelConfig& model) = nullptr;
  // Prefix of names that only files of some versions have: "transformer.", or "".
  std::string optional_prefix;
  // Suffixes of names of tensors that follow from the configuration: masks, angles.
  std::vector<std::string> ignored;
  // Beginnings of names of tensors that predict later tokens, which are left out too.
  std::vector<std::string> ignored_beginnings = {};
  // The key that counts such layers (kLaterLayers), if the family has them. If their tensors are
  // not in the files, as in those that Transformers saves, the model has none.
  std::string later_layers = "";
  // How many there may be in the files where the key is absent, and the most that the family can
  // have; 0: any.
  std::int64_t uncounted_later_layers = 0;
  std::int64_t most_later_layers = 0;
  // Ends of names in older files, with what they are now.
  std::vector<std::pair<std::string, std::string>> older_ends = {};
  // places() of files in which the matrices of all experts of a layer are one tensor, where the
  // family has files of both kinds. Those that Piton writes are of places().
  std::vector<HfPlace> (*stacked_places)(const ModelConfig& model) = nullptr;
  // The beginning of names in files that modules of Transformers 5 have another one for, and that
  // one. Adapters are of modules.
  std::string file_beginning = "";
  std::string module_beginning = "";
};

}  // namespace piton
