// The losses of pairs as functions of two scores, with their derivatives: a of the chosen answer, b
// of the rejected one. z = a - b, s: logistic function, e: label smoothing, t: --discopop-tau.
//
//   sigmoid    -(1 - e) log s(beta z) - e log s(-beta z)              arXiv:2305.18290
//   hinge      max(0, 1 - beta z)                                     arXiv:2305.10425
//   ipo        (z - 1 / (2 beta))^2                                   arXiv:2310.12036
//   robust     (-(1 - e) log s(beta z) + e log s(-beta z)) / (1 - 2 e)  arXiv:2403.00409
//   exo_pair   q (log q - log(1 - e)) + (1 - q) (log(1 - q) - log e),   arXiv:2402.00856
//              q = s(beta z)
//   nca_pair   -log s(beta a) - log s(-beta a) / 2 - log s(-beta b) / 2  arXiv:2402.05369
//   bco_pair   -log s(beta a) - log s(-beta b)                        arXiv:2404.04656
//   sppo_hard  (a - 1 / (2 beta))^2 + (b + 1 / (2 beta))^2            arXiv:2405.00675
//   apo_zero   1 - s(beta a) + s(beta b)                              arXiv:2408.06266
//   apo_down   s(beta a) + 1 - s(beta z)                              the same
//   discopop   -(1 - m) log s(beta z) + m exp(-beta z), m = s(beta z / t)  arXiv:2406.08414
//
// sigmoid_norm is sigmoid of scores that are means over the tokens.
#pragma once

#include "preferences/preference_options.h"

namespace piton {

double logistic(double x);
double log_logistic(double x);

// A function of one number, and its derivative.
struct ScoreTerm {
  double value = 0;
  double slope = 0;
};

// What of x = p - r, the log-ratio of an answer, is its score under an f-divergence: f'(exp x).
ScoreTerm score_of(DivergenceKind kind, double coefficient, double x);

struct PairTerm {
  double value = 0;
  double dchosen = 0;  // derivatives by a and b
  double drejected = 0;
};

struct PairRules {
  PairLossKind kind = PairLossKind::kSigmoid;
  double beta = 0.1;
  double smoothing = 0;
  double tau = 0.05;
};

PairTerm pair_term(const PairRules& rules, double chosen, double rejected);

}  // namespace piton
