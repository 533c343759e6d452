// The losses of preferences, with their derivatives by the log-probabilities of answers.
//
// p and r are sums of log-probabilities over the tokens of an answer: of the model in training and
// of the reference. n: number of these tokens. c: chosen, j: rejected. s: logistic function.
//
//   z = (p_c - r_c) - (p_j - r_j)
//   dpo sigmoid   -(1 - e) log s(b z) - e log s(-b z)             Rafailov 2023, arXiv:2305.18290
//       hinge     max(0, 1 - b z)                                 Zhao 2023, arXiv:2305.10425
//   ipo           (z' - 1 / (2 b))^2, with each p and r over n    Azar 2023, arXiv:2310.12036
//       both      + f (-p_c / n_c)                                --pref-ftx f
//   simpo         as dpo, with z = p_c / n_c - p_j / n_j - g      Meng 2024, arXiv:2405.14734
//   orpo          -p_c / n_c - b log s(o_c - o_j),                Hong 2024, arXiv:2403.07691
//                 o = q - log(1 - exp q), q = p / n
//   rm            -log s(R_c - R_j - m) + e (R_c + R_j)^2         Bradley and Terry 1952
//                 R: the reward of an answer; m: --reward-margin; e: --center-rewards-coefficient
//   kto           w (1 - s(b (p - r - k))) of a good answer,      Ethayarajh 2024, arXiv:2402.01306
//                 w (1 - s(b (k - p + r))) of a bad one; k = max(0, mean of p - r over mismatched
//                 answers), which has no gradient
//
// These are the formulas of TRL (DPOTrainer, CPOTrainer, ORPOTrainer, KTOTrainer, RewardTrainer),
// but the first term of orpo is over the answer alone, as in the paper, where TRL takes the
// question too.
#pragma once

#include "preferences/preference_options.h"

namespace piton {

struct ScoredAnswer {
  double policy = 0;     // p
  double reference = 0;  // r; not read by losses without a reference
  double tokens = 0;     // n
};

struct PairLoss {
  double loss = 0;
  double dchosen = 0;  // derivatives by p_c and p_j
  double drejected = 0;
  double chosen_reward = 0;  // b (p - r); without a reference b p / n
  double rejected_reward = 0;
};

struct AnswerLoss {
  double loss = 0;
  double dpolicy = 0;  // derivative by p
  double reward = 0;   // b (p - r)
};

// Asserts that the stage of `options` is one of pairs, and that both answers have tokens.
PairLoss pair_loss(const PreferenceOptions& options, const ScoredAnswer& chosen,
                   const ScoredAnswer& rejected);

// Of rm. Derivatives are those by the rewards.
PairLoss reward_loss(const PreferenceOptions& options, double chosen, double rejected);

// Of kto. `divergence`: k.
AnswerLoss answer_loss(const PreferenceOptions& options, const ScoredAnswer& answer, bool desirable,
                       double divergence);

}  // namespace piton
