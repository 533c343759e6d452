#include "data/samples/batch.h"

#include <numeric>

namespace piton {

double MicroBatch::loss_tokens() const {
  return std::accumulate(loss_mask.begin(), loss_mask.end(), 0.0);
}

}  // namespace piton
