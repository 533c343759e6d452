// What is sharded together: units of parameters, each cut into one equal part for every rank of its
// reduction group.
//
//   unit     entries, each at a multiple of 16 elements (64 bytes of fp32)      padding
//            |  parameter a   | b | parameter c                              |..........|
//   parts    |     rank 0     |     rank 1     |     rank 2     |     rank 3            |
//
// A unit is padded until its parts are equal multiples of 16 elements, so a plain reduce-scatter or
// all-gather moves it and every rank sends and receives the same. A unit is reduced, and gathered,
// as a whole: a bucket (ZeRO 0 to 2) or a parameter (ZeRO 3).
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/reduction_groups.h"

namespace piton {

inline constexpr std::int64_t kUnitAlignment = 16;

// How a unit is divided among its parts.
enum class CutPolicy : std::uint8_t {
  kEven,             // anywhere at a multiple of kUnitAlignment
  kWholeParameters,  // no parameter is cut: for updates that need whole matrices
};

struct UnitEntry {
  Parameter* parameter = nullptr;
  std::int64_t begin = 0;  // in the unit
  std::int64_t size = 0;   // elements, padding not counted
};

struct ShardUnit {
  const ReductionGroup* group = nullptr;
  CutPolicy cut = CutPolicy::kEven;
  DType dtype = DType::kF32;  // of the values
  bool tied = false;          // one parameter that other stages hold too
  std::vector<UnitEntry> entries;
  std::int64_t size = 0;  // of all parts
  int parts = 1;          // the group's size, or 1 where every rank owns everything
  int own = 0;            // the part of this rank

  std::int64_t part_size() const { return size / parts; }
  std::int64_t own_begin() const { return part_size() * own; }
};

struct UnitRules {
  // A unit is closed when its values take this many bytes as fp32; 0: a unit for each parameter.
  std::int64_t bucket_bytes = 0;
  bool sharded = true;  // false: one part, which every rank owns
  CutPolicy cut = CutPolicy::kEven;
};

// Units of one reduction group and one dtype each; a tied parameter has a unit of its own, which
// other stages cut alike. In the order in which backward completes them: from the last parameter to
// the first. Entries of a kEven unit ascend in the order of `parameters`.
std::vector<ShardUnit> make_shard_units(const std::vector<Parameter*>& parameters,
                                        const ReductionGroups& groups, const UnitRules& rules);

// A run of one parameter inside the own part of a unit: what the optimizer updates.
struct ShardSpan {
  Parameter* parameter = nullptr;
  std::int64_t parameter_offset = 0;  // first element, in the parameter's local tensor
  std::size_t unit = 0;
  std::int64_t unit_begin = 0;  // in the unit
  std::int64_t size = 0;
};
// In the order of units and entries; at most one span of a parameter.
std::vector<ShardSpan> owned_spans(const std::vector<ShardUnit>& units);

}  // namespace piton
