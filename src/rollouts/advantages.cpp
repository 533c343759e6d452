#include "rollouts/advantages.h"

#include <cmath>

#include "base/error.h"

namespace piton {
namespace {

constexpr double kLeastDivisor = 1e-4;
// torch.isclose(s, 0): its absolute tolerance.
constexpr double kNoSpread = 1e-8;

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments moments_of(std::span<const double> values) {
  const auto n = static_cast<double>(values.size());
  Moments found;
  for (const double one : values) found.mean += one / n;
  double squares = 0;
  for (const double one : values) squares += (one - found.mean) * (one - found.mean);
  if (values.size() > 1) found.deviation = std::sqrt(squares / (n - 1));
  return found;
}

}  // namespace

Advantages advantages_of(std::span<const double> rewards, std::int64_t group,
                         const AdvantageRules& rules) {
  PITON_ASSERT(group > 0 && std::ssize(rewards) % group == 0, "{} rewards in groups of {}",
               rewards.size(), group);
  const auto size = static_cast<std::size_t>(group);
  const bool rloo = rules.estimator == AdvantageEstimator::kRloo;
  PITON_ASSERT(!rloo || (group > 1 && rules.scale != RewardScale::kGroup),
               "answers left out one at a time, of groups of {}", group);
  Advantages found{.spread = moments_of(rewards).deviation};
  for (std::size_t begin = 0; begin < rewards.size(); begin += size) {
    const std::span<const double> own = rewards.subspan(begin, size);
    const Moments moments = moments_of(own);
    double divisor = 1;
    if (rules.scale == RewardScale::kGroup) divisor = moments.deviation + kLeastDivisor;
    if (rules.scale == RewardScale::kBatch && !rloo) divisor = found.spread + kLeastDivisor;
    // r_i - (sum - r_i) / (n - 1) = (r_i - mean) n / (n - 1)
    if (rloo) divisor = static_cast<double>(group - 1) / static_cast<double>(group);
    for (const double one : own) found.values.push_back((one - moments.mean) / divisor);
    found.groups += 1;
    found.without_spread += moments.deviation <= kNoSpread ? 1 : 0;
  }
  if (rloo && rules.scale == RewardScale::kBatch) {
    const Moments moments = moments_of(found.values);
    for (double& one : found.values)
      one = (one - moments.mean) / (moments.deviation + kLeastDivisor);
  }
  return found;
}

}  // namespace piton
