// The balance of experts and the z-loss of their routers in the loss of a step: means over all rows
// of the global batch, so that it does not depend on how many of them have a label, nor on the
// division into micro-batches of equal size.
#pragma once

#include <vector>

#include "data/samples/batch.h"
#include "session/objective.h"
#include "tensor/tensor.h"

namespace piton {

// Rows of all micro-batches of this rank.
double rows_of(const std::vector<MicroBatch>& batches);

struct ExpertBalance {
  Tensor scale;     // ModelInput::balance_scale; empty: there are no experts
  double rows = 0;  // of the global batch
  // load_balancing_loss, the mean over layers and rows (as Megatron-LM logs it). `sum`: kBalanceSum
  // of all ranks and micro-batches.
  ObjectiveFigure figure(double sum, std::int64_t layers) const;
  // z_loss, likewise; `sum`: kZLossSum.
  ObjectiveFigure z_figure(double sum, std::int64_t layers) const;
};

}  // namespace piton
