// Parameter values in the order of their units: whole units (ZeRO 0 to 2), or only this rank's part
// of each unit (ZeRO 3).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "device/device.h"
#include "parallel/shard_units.h"

namespace piton {

// The tensor of a unit.
struct UnitTensor {
  DType (*dtype)(const ShardUnit&) = nullptr;
  std::int64_t (*elements)(const ShardUnit&) = nullptr;
  MemoryKind kind = MemoryKind::kParameters;
};

// One tensor for each unit, flat and zeroed. All units of a dtype are slices of one allocation.
std::vector<Tensor> allocate_units(const std::vector<ShardUnit>& units, const UnitTensor& tensor,
                                   Device& device, Arena& arena, Stream& stream);

// Every rank holds all values; Parameter::value is a view of them.
class WholeValues {
 public:
  // Allocates the values (kParameters), zeroes them, and sets Parameter::value of every entry.
  // `units` must outlive this object.
  WholeValues(const std::vector<ShardUnit>& units, Device& device, Arena& arena, Stream& stream);

  ~WholeValues();  // waits for gathers
  WholeValues(const WholeValues&) = delete;
  WholeValues& operator=(const WholeValues&) = delete;

  Tensor part(const ShardSpan& span) const;  // [size]
  // Starts to all-gather every unit from the parts of the ranks of its group, those of the first
  // layers first. Until await(), neither read a parameter nor write this rank's parts of it.
  void gather_parts(Arena& arena, Stream& stream);
  // `stream` waits for the values of the parameter, or of all.
  void await(const Parameter& parameter, Stream& stream);
  void await_all(Stream& stream);
  // The same for this host thread.
  void await(const Parameter& parameter);

 private:
  const std::vector<ShardUnit>& units_;
  std::vector<Tensor> values_;   // by unit, [unit size]
  std::vector<Event> gathered_;  // by unit
  std::map<const Parameter*, std::size_t> unit_of_;
};

// Every rank holds only its part of every unit. `units` must outlive this object.
class ShardValues {
 public:
  ShardValues(const std::vector<ShardUnit>& units, Device& device, Arena& arena, Stream& stream);

  const Tensor& own(std::size_t unit) const { return values_[unit]; }  // [part size]
  Tensor part(const ShardSpan& span) const;                            // [size]

 private:
  const std::vector<ShardUnit>& units_;
  std::vector<Tensor> values_;  // by unit, [part size]
};

}  // namespace piton
