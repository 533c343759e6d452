// Writes a checkpoint from a source, in one process and without a model in memory. Converts weights
// of other programs to a checkpoint of Piton.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/threads.h"
#include "checkpoint/manifest.h"
#include "checkpoint/tensor_source.h"

namespace piton {

struct WriteSourceOptions {
  std::optional<DType> dtype;  // of the weights; else each stays as it is
  std::int64_t file_bytes = std::int64_t{4} << 30;
  std::function<void(std::int64_t bytes)> wrote;  // called with the bytes of each block
  ThreadPool* threads = nullptr;  // reads while others write (checkpoint/assembly.h)
};

// Writes the weights as `dir`/iter_NNNNNNN, where NNNNNNN is state.iteration, and points the
// tracker of `dir` at it. Needs memory for one block. Throws Error(kData) as the source does, and
// if the disk is full.
void write_checkpoint(const std::filesystem::path& dir, TensorSource& source,
                      const TrainState& state, const std::string& config,
                      const WriteSourceOptions& options = {});

}  // namespace piton
