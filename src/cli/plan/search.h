// `piton plan --search`: the layouts of a number of ranks with which a step takes least time.
#pragma once

#include <cstdint>
#include <string>

#include "api/planning.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {

struct SearchRequest {
  int ranks = 1;
  std::int64_t memory = 0;      // bytes of a rank; 0: no limit
  std::int64_t vocabulary = 0;  // of the tokenizer; 0: none
};

// A table of the best layouts and the flags of the first one. It varies tensor, pipeline and
// context ranks, sequence parallelism, ZeRO stages, micro-batches and recomputation of whole
// layers, and, among the best, the exchanges of context ranks and the schedules of pipelines; all
// else is as `options` say. Throws Error(kUsage) without a global batch size, and Error(kMemory) if
// nothing fits, with the least that a rank needs.
std::string search_layouts(const PretrainOptions& options, const SearchRequest& request,
                           const PlannedSpeeds& speeds, const Machine& machine);

}  // namespace piton::cli
