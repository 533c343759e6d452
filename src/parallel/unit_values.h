// Parameter values in the order of their units: whole (ZeRO 0 to 2), or this rank's part of each
// unit alone (ZeRO 3).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "device/device.h"
#include "parallel/shard_units.h"

namespace piton {

// One tensor [elements(unit)] for each unit, cut from one allocation for each dtype, zeroed.
// `dtype_of(unit)` and `elements(unit)` say what of.
std::vector<Tensor> allocate_units(const std::vector<ShardUnit>& units,
                                   DType (*dtype_of)(const ShardUnit&),
                                   std::int64_t (*elements)(const ShardUnit&), MemoryKind kind,
                                   Device& device, Arena& arena, Stream& stream);

// All ranks hold all rows; Parameter::value is a view.
class WholeValues {
 public:
  // Allocates (kParameters), zeroes, and sets Parameter::value of every entry. `units` outlives it.
  WholeValues(const std::vector<ShardUnit>& units, Device& device, Arena& arena, Stream& stream);

  Tensor part(const ShardSpan& span) const;  // [size]
  // Each rank's part of every unit to all ranks of its group; `stream` waits for them.
  void gather_parts(Arena& arena, Stream& stream);

 private:
  const std::vector<ShardUnit>& units_;
  std::vector<Tensor> values_;  // by unit
};

// This rank holds its part of every unit.
class ShardValues {
 public:
  ShardValues(const std::vector<ShardUnit>& units, Device& device, Arena& arena, Stream& stream);

  const Tensor& own(std::size_t unit) const { return values_[unit]; }  // [part size]
  Tensor part(const ShardSpan& span) const;                            // [size]

 private:
  const std::vector<ShardUnit>& units_;
  std::vector<Tensor> values_;  // by unit
};

}  // namespace piton
