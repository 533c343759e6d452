#include "train/sinks/megatron_flops.h"

namespace piton {

double megatron_flops(const ModelConfig& model, const LayoutOptions& layout,
                      std::int64_t sequence) {
  const auto s = static_cast<double>(sequence);
  const auto h = static_cast<double>(model.hidden);
  const auto layers = static_cast<double>(model.layers);
  const auto rows = static_cast<double>(layout.vocabulary_rows);
  const double passes = layout.recompute.granularity == RecomputeGranularity::kFull ? 4 : 3;
  return 24 * passes * s * layers * h * h * (1 + s / (6 * h) + rows / (16 * layers * h));
}

}  // namespace piton
