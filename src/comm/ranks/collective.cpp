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

std::int64_t slice_begin(std::int64_t elements, int members, int member) {
  constexpr std::int64_t kAlign = 16;
  const std::int64_t lines = (elements + kAlign - 1) / kAlign;
  return std::min(elements, lines * member / members * kAlign);
}

}  // namespace piton
