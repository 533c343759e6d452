#include "session/pair_weights.h"

namespace piton {

double count_pairs(const std::vector<MicroBatch>& batches) {
  double count = 0;
  for (const MicroBatch& batch : batches) {
    for (const std::int32_t label : batch.pair_labels) count += label >= 0 ? 1 : 0;
  }
  return count;
}

std::vector<MicroBatch> with_pair_weights(std::vector<MicroBatch> batches, double weight) {
  for (MicroBatch& batch : batches) {
    batch.pair_weights.clear();
    for (const std::int32_t label : batch.pair_labels)
      batch.pair_weights.push_back(label >= 0 ? static_cast<float>(weight) : 0.0F);
  }
  return batches;
}

}  // namespace piton
