#include "api/text_batches.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace piton {
namespace {

constexpr std::int64_t kMostRows = 4096;  // tokens that are computed together, with padding

// Tokens of padding that a batch may have: to read the weights for another batch takes about as
// long.
constexpr std::int64_t kMostPadding = 64;

// The first texts of `order`, which is by falling length.
TextBatch next_batch(std::span<const std::int64_t> lengths, std::span<const std::size_t> order) {
  const std::int64_t longest = lengths[order.front()];
  std::int64_t padding = 0;
  std::size_t count = 1;
  for (; count < order.size(); ++count) {
    padding += longest - lengths[order[count]];
    if (padding > kMostPadding || static_cast<std::int64_t>(count + 1) * longest > kMostRows) break;
  }
  return {order.first(count), longest};
}

}  // namespace

void for_each_text_batch(std::span<const std::int64_t> lengths,
                         const std::function<void(const TextBatch&)>& compute) {
  std::vector<std::size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(),
                           [&](std::size_t number) { return lengths[number]; });
  for (std::span<const std::size_t> left = order; !left.empty();) {
    const TextBatch batch = next_batch(lengths, left);
    compute(batch);
    left = left.subspan(batch.numbers.size());
  }
}

}  // namespace piton
