#include "data/instruct/packing.h"

#include <iterator>
#include <map>

#include "base/error.h"

namespace piton {

std::vector<std::vector<std::int64_t>> best_fit(const std::vector<std::int32_t>& lengths,
                                                std::int64_t capacity) {
  std::map<std::int64_t, std::vector<std::int64_t>> samples;  // by their length
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    PITON_ASSERT(lengths[i] > 0 && lengths[i] <= capacity, "a sample of {} ids", lengths[i]);
    samples[lengths[i]].push_back(static_cast<std::int64_t>(i));
  }
  std::vector<std::vector<std::int64_t>> packs;
  while (!samples.empty()) {
    std::vector<std::int64_t>& pack = packs.emplace_back();
    std::int64_t left = capacity;
    while (true) {
      auto at = samples.upper_bound(left);
      if (at == samples.begin()) break;
      --at;
      left -= at->first;
      pack.push_back(at->second.back());
      at->second.pop_back();
      if (at->second.empty()) samples.erase(at);
    }
  }
  return packs;
}

}  // namespace piton
