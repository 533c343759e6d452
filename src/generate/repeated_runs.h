// Runs of tokens that a text would repeat: the DRY penalty ("don't repeat yourself"), by the rules
// of llama.cpp.
//
// A token that would make the end of a text equal to an earlier run, and so one token longer, loses
// multiplier * base^(length of the run - allowed length) of its logit. Runs do not go over
// breakers, such as the end of a line: what comes before the last one in a text is no part of its
// end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace piton {

// Runs of ids that break others: a first id, and those after it. Ids that are a breaker alone are
// not penalized.
struct RunBreakers {
  std::multimap<std::int32_t, std::vector<std::int32_t>> runs;

  bool has(std::int32_t id) const;
};

struct RunPenalty {
  double multiplier = 0;                        // 0: none
  double base = 1.75;                           // at least 1
  std::int64_t allowed_length = 2;              // shorter runs may repeat
  std::int64_t last_tokens = -1;                // of the text are looked at; -1: all
  std::shared_ptr<const RunBreakers> breakers;  // null: none
};

// No penalty is larger, whatever the length of its run: a logit that loses so much has the
// probability 0.
inline constexpr double kMostRunPenalty = 1000;

// What the logit of each id loses.
std::map<std::int32_t, double> run_penalties(std::span<const std::int32_t> text,
                                             const RunPenalty& penalty);

}  // namespace piton
