// Advantages of the tokens of answers (--stage ppo): by how much what follows a token is better
// than a critic expects before it.
//
//   r_t = -k (p_t - q_t) + [t is the last token] r     rewards of tokens
//   d_t = r_t + g v_(t+1) - v_t                        v after the last token is 0
//   A_t = d_t + g l A_(t+1)                            generalized advantage estimate
//   R_t = A_t + v_t                                    what the critic learns
//
// p, q: log-probabilities of the token by the model that wrote it and by the reference; v: the
// value that the critic gives the text before the token; r: the reward of the answer; k: --kl-coef;
// g: --gamma; l: --lam. Advantages then get the mean 0 and the standard deviation 1 over the tokens
// of the batch (whitening); with --whiten-rewards the r_t get that deviation before, and keep their
// mean. Ziegler 2019, arXiv:1909.08593; Schulman 2016, arXiv:1506.02438. The formulas are those of
// PPOTrainer of TRL 0.11.
#pragma once

#include <span>
#include <vector>

namespace piton {

struct TokenRewardRules {
  double divergence_weight = 0.05;  // k
  double gamma = 1;                 // g
  double lambda = 0.95;             // l
  bool whitens_rewards = false;
};

// Of one answer; lists of its tokens that are learned, which may be none.
struct ValuedAnswer {
  std::vector<double> policy;     // p
  std::vector<double> reference;  // q; empty without a reference
  std::vector<double> values;     // v
  double reward = 0;              // r
};

struct TokenAdvantages {
  std::vector<std::vector<double>> advantages;  // of each answer
  std::vector<std::vector<double>> returns;     // R
  double divergence = 0;                        // sum of p - q
  double tokens = 0;
};

TokenAdvantages token_advantages(std::span<const ValuedAnswer> answers,
                                 const TokenRewardRules& rules);

}  // namespace piton
