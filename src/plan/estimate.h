// Finds what a layout costs each rank by running the model's own code on a device without memory:
// the parameters, buffers and activations of two steps, the bytes sent, the multiply-adds. Steps of
// many micro-batches repeat the same passes: some dozens are run, and the others are added by what
// one more round of the pipeline costs.
#pragma once

#include <cstdint>
#include <functional>

#include "train/run/run_plan.h"

namespace piton {

struct RankEstimate {
  MemoryCounts memory;               // high-water mark by kind and in all
  std::int64_t offloaded_bytes = 0;  // in host memory or a file, in no kind of `memory`
  TrafficCounts traffic;             // sent by this rank in one step
  std::int64_t parameters = 0;       // local elements, padding included
  // Host memory of --async-save: what this rank writes of a checkpoint, which ranks share evenly.
  std::int64_t save_copy_bytes = 0;
};

// Bytes of all kinds of collectives and messages.
std::int64_t sent_bytes(const TrafficCounts& sent);

// `machine` has the meta device and a virtual world of the plan's size. `before_last`: called
// before the second step, whose traffic is counted.
RankEstimate estimate_rank(const Machine& machine, const RunPlan& plan,
                           const std::function<void()>& before_last = {});

}  // namespace piton
