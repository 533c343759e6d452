#include "comm/ranks/collective.h"

#include <algorithm>

namespace piton {

std::string_view name(CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return "all-reduce";
    case CollectiveKind::kGather:
      return "all-gather";
    case CollectiveKind::kScatter:
      return "reduce-scatter";
    case CollectiveKind::kExchange:
      return "all-to-all";
    case CollectiveKind::kBroadcast:
      return "broadcast";
    case CollectiveKind::kBarrier:
      return "barrier";
  }
  return "?";
}

std::string Collective::text() const {
  return fmt::format("{} number {} of {} [{}]", name(kind), number, name(dtype), elements);
}

std::int64_t Collective::longest_part() const {
  std::int64_t longest = 0;
  if (pairs.empty()) {
    for (std::size_t m = 1; m < begins.size(); ++m)
      longest = std::max(longest, begins[m] - begins[m - 1]);
    return longest;
  }
  const std::size_t members = begins.size() - 1;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    if (i / members != i % members) longest = std::max(longest, pairs[i]);
  }
  return longest;
}

std::int64_t slice_begin(std::int64_t elements, int members, int member) {
  constexpr std::int64_t kAlign = 16;
  const std::int64_t lines = (elements + kAlign - 1) / kAlign;
  return std::min(elements, lines * member / members * kAlign);
}

}  // namespace piton
