#include "session/expert_balance.h"

namespace piton {

double rows_of(const std::vector<MicroBatch>& batches) {
  double rows = 0;
  for (const MicroBatch& batch : batches)
    rows += static_cast<double>(batch.samples * batch.sequence);
  return rows;
}

ExpertBalance::ExpertBalance(const Machine& machine, DType dtype, double rows_of_batch,
                             double loss_scale)
    : rows(rows_of_batch) {
  const bool wide = dtype == DType::kF64;
  scale = machine.arena.allocate(wide ? DType::kF64 : DType::kF32, {1}, MemoryKind::kWorkspace,
                                 machine.stream);
  const double factor = loss_scale / rows;
  const auto narrow = static_cast<float>(factor);
  machine.device.upload(wide ? static_cast<const void*>(&factor) : &narrow, scale, machine.stream);
}

ObjectiveFigure ExpertBalance::figure(double sum, std::int64_t layers) const {
  return {"load_balancing_loss", sum / static_cast<double>(layers), rows};
}

}  // namespace piton
