// The loss of a token of an answer that was drawn from the model in training.
//
//   l = -min(A w, A clip(w, 1 - e, 1 + f)) + b (exp(d) - d - 1),  w = exp(p - o),  d = r - p
//
// p, o, r: log-probabilities of the token by the model in training, by the same model when the
// answer was written, and by the reference; A: the advantage of its answer; e: --grpo-epsilon;
// f: --grpo-epsilon-high; b: --grpo-beta. So
//
//   dl/dp = -A w [w is not clipped] + b (1 - exp(d))
//
// where w is clipped if A > 0 and w > 1 + f, or A < 0 and w < 1 - e. In the first update of a batch
// of answers p is o, and w = 1. With --importance-sampling-level sequence the exponent of w is the
// mean of p - o over the tokens of the answer (GSPO, Zheng 2025, arXiv:2507.18071): the derivative
// by each of its p is the same, since as many tokens depend on it as it is divided by. With
// --grpo-loss-type rloo it is the sum of p - o over them, so that w is the ratio of the answers'
// probabilities:
//
//   L = -min(A w, A clip(w, 1 - e, 1 + f)) for an answer, dL/dp = -A w [w is not clipped]
//                                                  Ahmadian 2024, arXiv:2402.14740
//
// cispo and sapo have other first terms (t: --sapo-temperature-pos if A > 0, else
// --sapo-temperature-neg):
//
//   cispo    -A min(w, f) p, in which w has no derivative: dl/dp = -A min(w, f)
//                                                  MiniMax 2025, arXiv:2506.13585
//   sapo     -A s(t (w - 1)) 4 / t,  s: logistic function
//                                                  Gao 2025, arXiv:2511.20347
//
// The last term is the estimator k3 of the KL divergence (Schulman 2020). The loss of an update is
// the sum over the tokens of n answers, each divided by (c: tokens of its answer)
//
//   grpo, sapo   n c                               Shao 2024, arXiv:2402.03300
//   dr_grpo  n (--max-completion-length)           Liu 2025, arXiv:2503.20783
//   dapo, cispo  tokens of all answers, those of the whole batch over --num-mini-batches
//                                                  Yu 2025, arXiv:2503.14476
//   rloo     n, of the losses of answers
//   bnpo     (micro-batches) (tokens of the answers of its micro-batch)
//
// as in TRL's GRPOTrainer and RLOOTrainer.
#pragma once

#include <cstdint>

namespace piton {

// The first term.
enum class PolicyForm : std::uint8_t { kClipped, kCispo, kSapo };

struct PolicyClip {
  double below = 0.2;  // e
  double above = 0.2;  // f
  double beta = 0;     // b
  PolicyForm form = PolicyForm::kClipped;
  double positive_temperature = 1;     // t
  double negative_temperature = 1.05;  // t of A <= 0
};

// Differences of log-probabilities.
struct TokenPolicy {
  double since_written = 0;   // exponent of w
  double from_reference = 0;  // d; 0 without a reference
  double policy = 0;          // p, which only the loss of cispo reads
};

struct TokenPolicyLoss {
  double loss = 0;
  double slope = 0;       // dl/dp
  double divergence = 0;  // exp(d) - d - 1
  bool clipped = false;
};

TokenPolicyLoss token_policy_loss(double advantage, const TokenPolicy& token,
                                  const PolicyClip& clip);

}  // namespace piton
