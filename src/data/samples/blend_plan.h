// What each set of a run reads, from --data-path, --split and their like: prefixes with weights and
// shares. Opens nothing.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/samples/data_options.h"

namespace piton {

// [start, end) of a corpus for training, validation and test.
using Shares = std::array<std::pair<double, double>, 3>;

// "969, 30, 1" -> cumulative shares of the whole. Throws Error(kUsage) unless they are up to three
// numbers of 0 or more, not all 0.
Shares share_bounds(const std::string& split);

// The sequences that a share covers: each bound rounded half to even.
std::pair<std::int64_t, std::int64_t> bounds_of(double start, double end, std::int64_t sequences);

// What one set reads: prefixes with their shares, with or without weights.
struct BlendPart {
  std::string prefix;
  double weight = 0;
  double start = 0;
  double end = 1;
  bool may_cut = false;  // within a sequence, if there are few
};
struct BlendPlan {
  std::vector<BlendPart> parts;
  bool weighted = false;
  bool blend_single = false;  // a single weighted prefix is read as a blend
};

// The share of set 0, 1 or 2 of --data-path, by --split. No parts: none. Throws Error(kUsage) for
// malformed options, as the next two.
BlendPlan divided_plan(const DataOptions& options, std::size_t set);

// Of --train-data-path and its like.
BlendPlan whole_plan(const std::vector<std::string>& words, std::string_view flag);

// "NAME: W START:END PREFIX, W START:END PREFIX": the name, and what the set reads.
std::pair<std::string, BlendPlan> weighted_plan(const std::string& text, std::string_view flag);

// The sets of training (0, which has at most one), validation (1) or test (2), which is `name`, and
// what each of them reads. Sets are named `name` if there is one, by their texts
// (--valid-weighted-split-paths), or by the ends of their prefixes (--multiple-validation-sets;
// distinct_ends()). Throws Error(kUsage) also for two sets of one name.
std::vector<std::pair<std::string, BlendPlan>> plans_of_sets(const DataOptions& options,
                                                             std::size_t set,
                                                             const std::string& name);

// What the options say of the corpora to train on but for their names, for people and to compare:
// "2 corpora, weights 0.9, 0.1", with the share of each corpus that is read where that is not all
// of it. "": none are named. Opens nothing. Throws Error(kUsage) as open_data_sets().
std::string training_blend(const DataOptions& options);

// "969, 30, 1" -> bounds of the three splits over `sequences`, [3] pairs; empty ones have equal
// ends.
std::vector<std::pair<std::int64_t, std::int64_t>> split_bounds(const std::string& split,
                                                                std::int64_t sequences);

// What --data-path or --train-data-path has for training. Throws Error(kUsage) for data that has no
// epochs.
BlendPlan plan_of_epochs(const DataOptions& options);

}  // namespace piton
