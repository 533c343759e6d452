// Writes a Hugging Face folder's config.json and weights from canonical tensors.
//
//   config.json
//   model.safetensors, or model-00001-of-00003.safetensors ... and model.safetensors.index.json
//
// Matrices that the source has as whole numbers are written so with HfWriteOptions::codes
// (huggingface/files/compressed_tensors.h). All other tensors have the names and shapes of the
// family; their bytes are unchanged if their type is. A tied head and padding rows are not written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "base/json.h"
#include "base/threads.h"
#include "checkpoint/tensor_source.h"
#include "codes/integer_codes.h"
#include "huggingface/families/hf_family.h"

namespace piton {

struct HfWriteOptions {
  std::optional<DType> dtype;  // of every tensor; else each stays as it is
  // How the source has matrices as codes, which are written as such then.
  std::optional<IntegerFormat> codes = std::nullopt;
  // A shard is closed before it exceeds this; a larger tensor gets a separate shard.
  std::int64_t max_shard_bytes = std::int64_t{5'000'000'000};
  std::function<void(std::int64_t bytes)> wrote;  // called with the bytes of each block
  ThreadPool* threads = nullptr;  // reads while others write (checkpoint/assembly.h)
};

struct HfWrittenModel {
  const ModelConfig& model;
  const HfFamily& family;
  // The keys of config.json. "dtype" and "tie_word_embeddings" are set to what is written.
  nlohmann::ordered_json config;
};

// Writes into `folder`, which must exist. Needs memory for one block, or for a part of a
// transposed tensor. Throws Error(kData) as the source does, and if the disk is full.
void write_huggingface(const std::filesystem::path& folder, TensorSource& source,
                       HfWrittenModel written, const HfWriteOptions& options = {});

}  // namespace piton
