// `bench checkpoint`: how fast a model with its optimizer is saved to a disk, and loaded again.
#pragma once

#include <cstdint>
#include <filesystem>

#include "bench/timing.h"
#include "train/run/run_plan.h"

namespace piton {

struct CheckpointBench {
  Samples save;            // until the bytes are on the disk
  Samples load;            // right after it, so mostly from the memory of the system
  std::int64_t bytes = 0;  // of the files of one checkpoint
  MemoryCounts memory;
};

// Collective over all ranks. Each round saves a checkpoint into `folder`, which all ranks share,
// loads it, and removes it. `folder` must not exist, and is removed at the end. Throws Error(kData)
// as save_checkpoint() does, and Error(kUsage) for a folder that exists.
CheckpointBench bench_checkpoint(const Machine& machine, const RunPlan& plan,
                                 const std::filesystem::path& folder, int rounds);

}  // namespace piton
