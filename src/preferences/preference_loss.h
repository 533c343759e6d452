// The losses of preferences, with their derivatives by the log-probabilities of answers.
//
// p and r are sums of log-probabilities over the tokens of an answer: of the model in training and
// of the reference. n: number of these tokens. c: chosen, j: rejected. s: logistic function.
//
// --dpo-loss-type and --cpo-loss-type choose a function L(a, b) of two scores
// (preferences/pair_term.h).
//
//   dpo           L(f(p_c - r_c), f(p_j - r_j)), f(x) = x; or by --f-divergence-type
//                 (Wang 2024, arXiv:2309.16240): forward_kl 1 - exp(-x), js_divergence
//                 log 2 + log s(x), alpha_divergence (exp((c - 1) x) - 1) / (c - 1)
//   ipo           the same of ipo. Scores of ipo and sigmoid_norm are divided by n
//       both      + g (-p_c / n_c)                                --pref-ftx g
//                 --ld-alpha w: in p and r the tokens beyond the length of the shorter answer count
//                 w each (Liu 2024, arXiv:2409.06411); not in the term of --pref-ftx
//   cpo           L(p_c, p_j) + d (-p_c / n_c); scores of ipo are divided by n. d: --cpo-alpha
//                                                                 Xu 2024, arXiv:2401.08417
//   simpo         L(p_c / n_c - g, p_j / n_j)              Meng 2024, arXiv:2405.14734
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
// question too; and terms of the chosen answer are means over its tokens, where TRL takes those of
// the batch.
#pragma once

#include "preferences/preference_options.h"

namespace piton {

struct ScoredAnswer {
  double policy = 0;     // p
  double reference = 0;  // r; not read by losses without a reference
  double tokens = 0;     // n
  // The parts of p and r of its tokens beyond the length of the other answer of a pair.
  double policy_tail = 0;
  double reference_tail = 0;
};

struct PairLoss {
  double loss = 0;
  double dchosen = 0;  // derivatives by p_c and p_j
  double drejected = 0;
  // The same by the tokens beyond the length of the other answer.
  double dchosen_tail = 0;
  double drejected_tail = 0;
  double chosen_reward = 0;  // b (p - r); without a reference b p / n, of cpo b p
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
