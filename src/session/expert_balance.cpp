#include "session/expert_balance.h"

namespace piton {

double rows_of(const std::vector<MicroBatch>& batches) {
  double rows = 0;
  for (const MicroBatch& batch : batches)
    rows += static_cast<double>(batch.samples * batch.sequence);
  return rows;
}

ObjectiveFigure ExpertBalance::figure(double sum, std::int64_t layers) const {
  return {"load_balancing_loss", sum / static_cast<double>(layers), rows};
}

ObjectiveFigure ExpertBalance::z_figure(double sum, std::int64_t layers) const {
  return {"z_loss", sum / static_cast<double>(layers), rows};
}

}  // namespace piton
