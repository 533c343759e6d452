// A checkpoint written from a source, by one process and without a model in memory: how other
// programs' weights become a checkpoint of Piton.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/manifest.h"
#include "checkpoint/tensor_source.h"

namespace piton {

struct WriteSourceOptions {
  std::optional<DType> dtype;  // of the weights; else each stays as it is
  std::int64_t file_bytes = std::int64_t{4} << 30;
  std::function<void(std::int64_t bytes)> wrote;  // called with the bytes of each block
};

// Writes the weights as `dir`/iter_NNNNNNN, NNNNNNN being state.iteration, and points the tracker
// of `dir` at it. Memory: one block. Throws Error(kData) as the source does, and where the disk is
// full.
void write_checkpoint(const std::filesystem::path& dir, TensorSource& source,
                      const TrainState& state, const std::string& config,
                      const WriteSourceOptions& options = {});

}  // namespace piton
