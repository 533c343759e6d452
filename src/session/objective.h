// A loss that is not the cross entropy of each label by itself: the weight of a token depends on
// the log-probabilities of whole answers, as in training by preferences.
//
// `head_loss` computes gradients in the forward pass, so the weights must be known before it. A
// step with an objective therefore has two parts:
//
//   1. weigh()    forward passes without a tape give the loss of each token
//   (Session::token_losses);
//                 from sums of them over answers follow the loss L and the weights
//                 w_i = dL / d(loss of token i), which replace MicroBatch::loss_mask
//   2. training   the usual passes, whose loss sum_i w_i (loss of token i) has the gradient of L
//
// Both parts see the same dropout masks and compute a token's loss with the same operations, so the
// gradient is that of L itself. Everything else of a step does not change: pipelines, tensor ranks,
// ZeRO, recomputation, packing and accumulation.
#pragma once

#include <string>
#include <vector>

#include "data/samples/batch.h"

namespace piton {

class Session;

// A mean that is reported with the loss, over all ranks.
struct ObjectiveFigure {
  std::string name;  // as in metrics.jsonl
  double sum = 0;
  double count = 0;

  double mean() const { return sum / count; }
};

// Adds the figures of another batch, by name. Those of count 0 are left out.
void add_figures(const std::vector<ObjectiveFigure>& more, std::vector<ObjectiveFigure>& figures);

// Over all ranks.
struct ObjectiveReport {
  double loss_sum = 0;
  double count = 0;  // the loss is loss_sum / count; the gradient is divided by it too
  std::vector<ObjectiveFigure> figures;
};

class Objective {
 public:
  virtual ~Objective() = default;
  // Collective over all ranks. Replaces loss_mask of this rank's micro-batches by the weights of
  // their tokens. `training`: with dropout.
  virtual ObjectiveReport weigh(Session& session, std::vector<MicroBatch>& batches,
                                bool training) = 0;
};

}  // namespace piton
