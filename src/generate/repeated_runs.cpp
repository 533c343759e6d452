#include "generate/repeated_runs.h"

#include <algorithm>
#include <cmath>

namespace piton {
namespace {

using Reversed = std::vector<std::int32_t>;  // the last id of the text first

// The number of ids of the breaker after its first one, which is at `at`; -1 if none begins there.
// The longest counts.
std::int64_t tail_of_breaker(const Reversed& ids, std::size_t at, const RunBreakers& breakers) {
  std::int64_t longest = -1;
  const auto [begin, end] = breakers.runs.equal_range(ids[at]);
  for (auto one = begin; one != end; ++one) {
    const std::vector<std::int32_t>& tail = one->second;
    if (tail.size() > at || std::ssize(tail) <= longest) continue;
    bool equal = true;
    for (std::size_t i = 0; i < tail.size(); ++i) equal = equal && tail[i] == ids[at - 1 - i];
    if (equal) longest = std::ssize(tail);
  }
  return longest;
}

// The number of ids after the last breaker.
std::int64_t unbroken_length(const Reversed& ids, const RunBreakers* breakers) {
  for (std::size_t at = 0; breakers != nullptr && at < ids.size(); ++at) {
    const std::int64_t tail = tail_of_breaker(ids, at, *breakers);
    if (tail >= 0) return static_cast<std::int64_t>(at) - tail;
  }
  return std::ssize(ids);
}

// For each place, how many ids from there on are equal to those from the beginning on (the Z
// algorithm: the time is that of one pass).
std::vector<std::int64_t> equal_lengths(const Reversed& ids) {
  const auto n = std::ssize(ids);
  std::vector<std::int64_t> lengths(ids.size());
  std::int64_t begin = 0;  // the stretch [begin, end) that is known to be equal, the last to end
  std::int64_t end = 0;
  for (std::int64_t at = 1; at < n; ++at) {
    std::int64_t length = at < end ? std::min(lengths[at - begin], end - at) : 0;
    while (at + length < n && ids[length] == ids[at + length]) ++length;
    lengths[at] = length;
    if (at + length <= end) continue;
    begin = at;
    end = at + length;
  }
  return lengths;
}

}  // namespace

bool RunBreakers::has(std::int32_t id) const {
  const auto [begin, end] = runs.equal_range(id);
  return std::any_of(begin, end, [](const auto& one) { return one.second.empty(); });
}

std::map<std::int32_t, double> run_penalties(std::span<const std::int32_t> text,
                                             const RunPenalty& penalty) {
  std::map<std::int32_t, double> penalties;
  if (penalty.multiplier == 0 || penalty.last_tokens == 0) return penalties;
  if (penalty.last_tokens > 0 && penalty.last_tokens < std::ssize(text))
    text = text.last(static_cast<std::size_t>(penalty.last_tokens));
  const Reversed ids(text.rbegin(), text.rend());
  const std::int64_t longest = unbroken_length(ids, penalty.breakers.get());
  if (std::ssize(ids) <= penalty.allowed_length || longest < penalty.allowed_length)
    return penalties;
  const std::vector<std::int64_t> equal = equal_lengths(ids);
  std::map<std::int32_t, std::int64_t> runs;  // of each id, the longest that it would repeat
  for (std::size_t at = 1; at < ids.size(); ++at) {
    const std::int64_t length = std::min(equal[at], longest);
    if (length < penalty.allowed_length) continue;
    std::int64_t& run = runs[ids[at - 1]];
    run = std::max(run, length);
  }
  for (const auto& [id, length] : runs) {
    if (penalty.breakers != nullptr && penalty.breakers->has(id)) continue;
    const double power =
        std::pow(penalty.base, static_cast<double>(length - penalty.allowed_length));
    penalties[id] = std::min(penalty.multiplier * power, kMostRunPenalty);
  }
  return penalties;
}

}  // namespace piton
