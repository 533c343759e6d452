#include "parallel/flat_layout.h"

#include <algorithm>

#include "base/error.h"

namespace piton {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// The places where a shard may begin: block edges of every parameter, and the end.
std::vector<std::int64_t> block_edges(const FlatLayout& layout) {
  std::vector<std::int64_t> edges;
  for (const FlatEntry& entry : layout.entries) {
    for (std::int64_t offset = 0; offset < entry.size; offset += kNormBlock) {
      edges.push_back(entry.begin + offset);
    }
  }
  edges.push_back(layout.size);
  return edges;
}

std::int64_t nearest(const std::vector<std::int64_t>& edges, std::int64_t target) {
  const auto above = std::ranges::lower_bound(edges, target);
  if (above == edges.begin()) return *above;
  if (above == edges.end()) return edges.back();
  const std::int64_t below = *std::prev(above);
  return target - below <= *above - target ? below : *above;
}

}  // namespace

FlatLayout make_flat_layout(const std::vector<Parameter*>& parameters, int ranks) {
  PITON_ASSERT(ranks >= 1, "a layout over {} ranks", ranks);
  FlatLayout layout;
  for (Parameter* parameter : parameters) {
    layout.entries.push_back({parameter, layout.size, parameter->elements()});
    layout.size += round_up(parameter->elements(), kFlatAlignment);
  }
  const std::vector<std::int64_t> edges = block_edges(layout);
  layout.shards.push_back(0);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::int64_t cut =
        nearest(edges, layout.size / ranks * rank + layout.size % ranks * rank / ranks);
    layout.shards.push_back(std::max(cut, layout.shards.back()));
  }
  layout.shards.push_back(layout.size);
  return layout;
}

std::vector<FlatSpan> spans_of_shard(const FlatLayout& layout, int rank) {
  PITON_ASSERT(rank >= 0 && rank + 1 < static_cast<int>(layout.shards.size()), "shard {} of {}",
               rank, layout.shards.size() - 1);
  std::vector<FlatSpan> spans;
  for (const FlatEntry& entry : layout.entries) {
    const std::int64_t begin = std::max(entry.begin, layout.shards[rank]);
    const std::int64_t end = std::min(entry.begin + entry.size, layout.shards[rank + 1]);
    if (begin < end) spans.push_back({entry.parameter, begin - entry.begin, begin, end - begin});
  }
  return spans;
}

std::vector<std::int64_t> cuts_within(const FlatLayout& layout, std::int64_t begin,
                                      std::int64_t size) {
  std::vector<std::int64_t> cuts;
  for (const std::int64_t shard : layout.shards) {
    cuts.push_back(std::clamp(shard, begin, begin + size) - begin);
  }
  return cuts;
}

}  // namespace piton
