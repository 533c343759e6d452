// Advantages of answers: by how much each is better than the others to its question.
//
//   A_i = (r_i - mean of the group) / (s + 1e-4)
//
// s: the standard deviation of the rewards of the group (--scale-rewards group), or of the whole
// batch (batch), each divided by n - 1; with none, A_i = r_i - mean. These are the definitions of
// TRL's GRPOTrainer. Shao 2024, arXiv:2402.03300; without scale Liu 2025, arXiv:2503.20783.
//
// With --advantage-estimator rloo the mean is that of the other answers (Ahmadian 2024,
// arXiv:2402.14740), and with --scale-rewards batch advantages, less their mean, are divided by
// their standard deviation + 1e-4 instead, as in TRL's RLOOTrainer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rollouts/rollout_options.h"

namespace piton {

struct Advantages {
  std::vector<double> values;  // of each answer
  double spread = 0;           // standard deviation of all rewards
  double without_spread = 0;   // groups whose rewards are all equal
  double groups = 0;
};

// `rewards`: those of the answers to one question are next to each other, `group` of them.
Advantages advantages_of(std::span<const double> rewards, std::int64_t group,
                         const AdvantageRules& rules);

}  // namespace piton
