#include "rollouts/token_advantages.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace piton {
namespace {

constexpr double kLeastVariance = 1e-8;

using ListsOfTokens = std::vector<std::vector<double>>;

// The standard deviation becomes 1, and the mean 0 unless it stays.
void whiten(ListsOfTokens& lists, bool keeps_mean) {
  double sum = 0;
  double count = 0;
  for (const auto& list : lists) {
    for (const double one : list) sum += one;
    count += static_cast<double>(list.size());
  }
  if (count == 0) return;
  const double mean = sum / count;
  double squares = 0;
  for (const auto& list : lists) {
    for (const double one : list) squares += (one - mean) * (one - mean);
  }
  const double scale = 1 / std::sqrt(squares / std::max(count - 1, 1.0) + kLeastVariance);
  for (auto& list : lists) {
    for (double& one : list) one = (one - mean) * scale + (keeps_mean ? mean : 0);
  }
}

}  // namespace

TokenAdvantages token_advantages(std::span<const ValuedAnswer> answers,
                                 const TokenRewardRules& rules) {
  TokenAdvantages found;
  ListsOfTokens rewards;
  for (const ValuedAnswer& answer : answers) {
    const std::size_t tokens = answer.values.size();
    PITON_ASSERT(answer.policy.size() == tokens, "{} values of {} tokens", tokens,
                 answer.policy.size());
    std::vector<double>& own = rewards.emplace_back(tokens);
    for (std::size_t t = 0; t < tokens && !answer.reference.empty(); ++t) {
      const double divergence = answer.policy[t] - answer.reference.at(t);
      found.divergence += divergence;
      own[t] = -rules.divergence_weight * divergence;
    }
    found.tokens += static_cast<double>(tokens);
    if (tokens > 0) own.back() += answer.reward;
  }
  if (rules.whitens_rewards) whiten(rewards, /*keeps_mean=*/true);
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const std::vector<double>& values = answers[i].values;
    std::vector<double>& advantages = found.advantages.emplace_back(values.size());
    std::vector<double>& returns = found.returns.emplace_back(values.size());
    double next_value = 0;
    double next_advantage = 0;
    for (std::size_t t = values.size(); t-- > 0;) {
      const double difference = rewards[i][t] + rules.gamma * next_value - values[t];
      next_advantage = difference + rules.gamma * rules.lambda * next_advantage;
      next_value = values[t];
      advantages[t] = next_advantage;
      returns[t] = next_advantage + values[t];
    }
  }
  whiten(found.advantages, /*keeps_mean=*/false);
  return found;
}

}  // namespace piton
