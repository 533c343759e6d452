// A GGUF file, written from canonical tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/threads.h"
#include "checkpoint/tensor_source.h"
#include "gguf/architectures.h"
#include "gguf/blocks/ggml_type.h"

namespace piton {

struct GgufWriteOptions {
  // The type of matrices; not set: each keeps its type. Norms, biases and learned positions are
  // F32. With Q4_0 the head's table is Q8_0, with Q4_K and Q5_K it is Q6_K, because the loss of
  // precision costs most there. A matrix whose rows are not whole blocks of 256 is Q8_0, and one of
  // which they are not whole blocks of 32 is F16.
  std::optional<GgmlType> type;
  std::vector<GgufEntry> entries;                 // before those of the description
  std::vector<GgufEntry> vocabulary;              // after those of the description
  std::function<void(std::int64_t bytes)> wrote;  // called with the bytes of each block
  ThreadPool* threads = nullptr;  // reads while others write (checkpoint/assembly.h)
};

struct GgufWritten {
  std::int64_t quantized = 0;                // tensors
  std::vector<std::string> in_short_blocks;  // names of tensors that are Q8_0 instead
  std::vector<std::string> not_in_blocks;    // names of tensors that are F16 instead
};

// Throws Error(kData) like the source, for values that cannot be quantized, and if the disk is
// full. Needs memory for one block.
GgufWritten write_gguf(const std::filesystem::path& path, TensorSource& source,
                       const ModelConfig& model, const GgufDescription& description,
                       const GgufWriteOptions& options);

}  // namespace piton
