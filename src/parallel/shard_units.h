// Units of sharding. A unit is a list of parameters, laid out one after another and cut into equal
// parts, one for each rank of the unit's reduction group.
//
//   unit     entries, each at a multiple of 16 elements (64 bytes of fp32)      padding
//            |  parameter a   | b | parameter c                              |..........|
//   parts    |     rank 0     |     rank 1     |     rank 2     |     rank 3            |
//
// A unit is padded until each part is a multiple of 16 elements. All parts are equal, so plain
// reduce-scatters and all-gathers serve, and every rank sends and receives the same number of
// bytes. A unit is always reduced or gathered as a whole. It is a bucket of parameters (ZeRO 0 to
// 2) or one parameter (ZeRO 3).
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/reduction_groups.h"

namespace piton {

inline constexpr std::int64_t kUnitAlignment = 16;

// Where the boundaries between parts may be.
enum class CutPolicy : std::uint8_t {
  kEven,             // at any multiple of kUnitAlignment
  kWholeParameters,  // only between parameters: for updates that need whole matrices
  kWholeMatrices,    // only in UnitRules: kWholeParameters for matrices, kEven for the others
};

struct UnitEntry {
  Parameter* parameter = nullptr;
  std::int64_t begin = 0;  // first element, counted from the start of the unit
  std::int64_t size = 0;   // elements, without padding
};

struct ShardUnit {
  const ReductionGroup* group = nullptr;
  CutPolicy cut = CutPolicy::kEven;
  DType dtype = DType::kF32;  // of the values
  bool tied = false;          // the unit is one parameter, which other stages hold too
  std::vector<UnitEntry> entries;
  std::int64_t size = 0;  // elements of all parts, with padding
  int parts = 1;          // the size of the group, or 1 if every rank owns everything
  int own = 0;            // index of this rank's part

  std::int64_t part_size() const { return size / parts; }
  std::int64_t own_begin() const { return part_size() * own; }
};

struct UnitRules {
  // A unit takes no more parameters once it holds this many bytes, counted as fp32. Under
  // kWholeParameters it takes parts / 2 times as many bytes: with more parameters, the parts become
  // about equal in size. 0: each parameter is a unit.
  std::int64_t bucket_bytes = 0;
  bool sharded = true;  // false: one part, which every rank owns
  CutPolicy cut = CutPolicy::kEven;

  CutPolicy cut_of(const Parameter& parameter) const {
    if (cut != CutPolicy::kWholeMatrices) return cut;
    return parameter.is_matrix() ? CutPolicy::kWholeParameters : CutPolicy::kEven;
  }
};

// Divides parameters into units. All parameters of a unit have one reduction group, dtype, cut and
// chunk: so the gradients of a chunk can be reduced while another chunk of the stage goes back.
// A tied parameter is a separate unit, which every stage that holds it cuts in the same way.
// Units are in the order in which backward completes them, from the last parameter to the first.
// Within a kEven unit, entries are in the order of `parameters`.
std::vector<ShardUnit> make_shard_units(const std::vector<Parameter*>& parameters,
                                        const ReductionGroups& groups, const UnitRules& rules);

// Consecutive elements of one parameter in this rank's part of a unit. The optimizer updates spans.
struct ShardSpan {
  Parameter* parameter = nullptr;
  std::int64_t parameter_offset = 0;  // first element, counted in the parameter's local tensor
  std::size_t unit = 0;               // index of the unit
  std::int64_t unit_begin = 0;        // first element, counted from the start of the unit
  std::int64_t size = 0;              // elements
};
// The spans of this rank, in the order of units and their entries; at most one for each parameter.
std::vector<ShardSpan> owned_spans(const std::vector<ShardUnit>& units);

}  // namespace piton
