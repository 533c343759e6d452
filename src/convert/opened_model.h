// A model as it is on the disk, in whatever format: its description, its weights, its tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "huggingface/family.h"
#include "megatron/megatron_source.h"
#include "model/config.h"
#include "text/files/tokenizer_options.h"

namespace piton {

enum class ModelFormat : std::uint8_t { kPiton, kHuggingFace, kMegatron };

// "piton", "hf", "mg": as options spell it.
std::string_view name(ModelFormat format);

// What only a Hugging Face folder has; it stays where one is written from one.
struct HfOrigin {
  HfFamily family;
  nlohmann::ordered_json config;
};

struct OpenedModel {
  ModelFormat format = ModelFormat::kPiton;
  ModelConfig model;  // `dtype` is that of most of the weights
  std::unique_ptr<TensorSource> source;
  TokenizerOptions tokenizer;              // empty(): there is none
  std::filesystem::path tokenizer_folder;  // of its files; "": there is none
  std::optional<HfOrigin> origin;
  bool says_its_model = true;      // false: it had to be given
  std::int64_t iteration = 0;      // how far it was trained, where that is known
  std::vector<std::string> notes;  // what a user should know, a line each
};

// Opens the newest checkpoint of a run, one checkpoint, or another program's model. Throws
// Error(kData) naming what is wrong with it, or that it is none. Bytes of a checkpoint of Piton are
// compared with their hashes when they are first read.
// `given` is for those of Megatron. `average`: of a checkpoint of Piton the moving average of the
// weights in their place; throws Error(kUsage) where there is none.
OpenedModel open_model(const std::filesystem::path& path, const MegatronGiven& given = {},
                       bool average = false);

}  // namespace piton
