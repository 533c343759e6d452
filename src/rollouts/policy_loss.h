// The loss of a token of an answer that was drawn from the model in training.
//
//   l = -A w + b (exp(d) - d - 1),  d = r - p
//
// p, r: log-probabilities of the token by the model in training and by the reference; A: the
// advantage of its answer; w = exp(p - p') with p' = p that is held constant: 1, with the
// derivative of p, since each batch of answers is learned from once; b: --grpo-beta. So
//
//   dl/dp = -A + b (1 - exp(d))
//
// The last term is the estimator k3 of the KL divergence (Schulman 2020). The loss of an update is
// the sum over the tokens of n answers, each divided by (c: tokens of its answer)
//
//   grpo     n c                                   Shao 2024, arXiv:2402.03300
//   dr_grpo  n (--max-completion-length)           Liu 2025, arXiv:2503.20783
//   dapo     tokens of all answers                 Yu 2025, arXiv:2503.14476
//   bnpo     (micro-batches) (tokens of the answers of its micro-batch)
//
// as in TRL's GRPOTrainer with num_iterations 1.
#pragma once

namespace piton {

struct TokenPolicyLoss {
  double loss = 0;
  double slope = 0;       // dl/dp
  double divergence = 0;  // exp(d) - d - 1
};

// `difference`: d; 0 without a reference.
TokenPolicyLoss token_policy_loss(double advantage, double beta, double difference);

}  // namespace piton
