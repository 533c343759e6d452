// The layouts that `piton bench parallel` compares, and the table of their figures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {

struct ComparedSizes {
  int ranks = 2;
  std::int64_t micro_batch = 1;
  std::optional<std::int64_t> global_batch;  // of every layout; empty: one micro-batch a data rank
  std::int64_t pipeline_micro_batches = 4;   // of a pipeline, if global_batch is empty
};

struct ComparedLayout {
  std::string name;                // "zero1"
  std::vector<std::string> flags;  // of piton, for these ranks
};

// "dp", "zero1", ...
std::vector<std::string> layout_names();

// All layouts for these sizes, in this order. `micro_batch` samples of a pipeline are divided into
// its micro-batches, so that it has as many tokens in a step as the other layouts.
std::vector<ComparedLayout> compared_layouts(const ComparedSizes& sizes);

// Why a run of `ranks` ranks with these options and flags is not possible; empty if it is.
std::optional<std::string> refusal(const PretrainOptions& options, const ComparedLayout& layout,
                                   int ranks);

// What `bench train` printed for one layout in each round.
struct LayoutRounds {
  ComparedLayout layout;
  std::vector<nlohmann::ordered_json> rounds;
};

// The figures of a layout: the best step of all rounds, the shortest plan, and of memory and bytes
// the rank that has most. `one`: tokens per second of one process.
nlohmann::ordered_json layout_figures(const LayoutRounds& measured, double one);
double tokens_per_second(const LayoutRounds& measured);

// The rows of all layouts, with a head.
std::string layout_table(const std::vector<nlohmann::ordered_json>& figures);

}  // namespace piton::cli
