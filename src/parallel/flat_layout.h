// Where parameters lie in the flat buffers of values, gradients and optimiser state, and where the
// buffers are cut into shards.
//
// Parameters stand in order, each padded to 16 elements (64 bytes of fp32). Norms are summed in
// blocks of kNormBlock elements counted from each parameter's start; shards are cut at block edges
// only, so block sums, and so the norm, do not depend on the number of shards.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/parameter.h"

namespace piton {

inline constexpr std::int64_t kNormBlock =
    16384;  // 64 KiB of fp32: two fit a level-1 cache with what reads them
inline constexpr std::int64_t kFlatAlignment = 16;

struct FlatEntry {
  Parameter* parameter = nullptr;
  std::int64_t begin = 0;  // in the flat buffer
  std::int64_t size = 0;   // elements, padding not counted
};

struct FlatLayout {
  std::vector<FlatEntry> entries;
  std::int64_t size = 0;             // of the buffer
  std::vector<std::int64_t> shards;  // [ranks + 1]: rank r owns [shards[r], shards[r+1])
};

// Cuts as near to equal as block edges allow; a shard is empty where there are more ranks than
// blocks.
FlatLayout make_flat_layout(const std::vector<Parameter*>& parameters, int ranks);

// A run of one parameter inside one shard: what the optimiser updates and the norm sums.
struct FlatSpan {
  Parameter* parameter = nullptr;
  std::int64_t parameter_offset = 0;  // first element, in the parameter's local tensor
  std::int64_t flat_begin = 0;
  std::int64_t size = 0;
};
std::vector<FlatSpan> spans_of_shard(const FlatLayout& layout, int rank);

// The shards' cuts inside [begin, begin + size) of the buffer, counted from `begin`, [ranks + 1]:
// rank r owns [cuts[r], cuts[r+1]) of that range. What Communicator's _parts collectives take.
std::vector<std::int64_t> cuts_within(const FlatLayout& layout, std::int64_t begin,
                                      std::int64_t size);

}  // namespace piton
