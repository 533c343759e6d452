// Sums by name.
#include "kernels/meta/call_counts.h"

namespace piton {

void CallCounts::add(const KernelCall& call) {
  const std::string_view call_name = name(call);
  auto found = counts_.find(call_name);
  if (found == counts_.end()) found = counts_.emplace(call_name, CallCount{}).first;
  ++found->second.calls;
  found->second.flops += flops(call);
  found->second.bytes_moved += bytes_moved(call);
}

CallCount CallCounts::of(std::string_view name) const {
  const auto found = counts_.find(name);
  return found == counts_.end() ? CallCount{} : found->second;
}

CallCount CallCounts::total() const {
  CallCount sum;
  for (const auto& [name, count] : counts_) {
    sum.calls += count.calls;
    sum.flops += count.flops;
    sum.bytes_moved += count.bytes_moved;
  }
  return sum;
}

}  // namespace piton
