// A model on disk, in any format: its description, its weights, its tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/tensor_source.h"
#include "megatron/megatron_source.h"
#include "model/config.h"
#include "text/files/tokenizer_options.h"
#include "train/run/model_format.h"

namespace piton {

struct OpenedModel {
  ModelFormat format = ModelFormat::kPiton;
  ModelConfig model;  // `dtype` is that of most of the weights
  std::unique_ptr<TensorSource> source;
  TokenizerOptions tokenizer;              // empty(): there is none
  std::filesystem::path tokenizer_folder;  // of its files; "": there is none
  // Names and contents of files, where the format has none: then the two above are empty.
  std::map<std::string, std::string> tokenizer_files;
  std::string name;  // of its folder or file
  // Of the Hugging Face folder that it is or comes from (huggingface/origin.h); null: not known.
  nlohmann::ordered_json origin;
  bool has_other_tokenizer = false;  // a run with another tokenizer than that of the origin
  bool describes_model = true;       // false: the user had to describe it
  std::int64_t iteration = 0;        // iterations that it was trained, if known
  std::vector<std::string> notes;    // notes for the user, one line each
};

// Opens the newest checkpoint of a run, one checkpoint, or another program's model. Throws
// Error(kData) naming what is wrong with it, or that it is not a model. Bytes of a checkpoint of
// Piton are compared with their hashes when they are first read.
// `given` is for those of Megatron. `average`: of a checkpoint of Piton the moving average of the
// weights in their place; throws Error(kUsage) where there is none.
OpenedModel open_model(const std::filesystem::path& path, const MegatronGiven& given = {},
                       bool average = false);

// model_type of config.json that the model has, or had before; "": not known.
std::string family_of(const OpenedModel& model);

// Null where there is none. Throws Error(kData) as open_tokenizer() does.
std::unique_ptr<Tokenizer> open_tokenizer_of(const OpenedModel& model);

}  // namespace piton
