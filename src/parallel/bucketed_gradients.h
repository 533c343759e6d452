// Gradients of ZeRO stages 0 and 1: buffers that add up the contributions of a step and are reduced
// unit by unit while backward continues.
//
// Every rank of a group must start the same reductions in the same order. The order is that of the
// units, from the last parameter to the first, whatever the order in which units get their last
// contribution. When it is the turn of a unit, first its sums over tensor ranks start (in program
// order, because the collectives of the layers use the same group), then its reduction, which
// follows their events. Compute does not wait for any of them before finish().
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "device/device.h"
#include "ops/weight.h"
#include "parallel/reduction_groups.h"
#include "parallel/shard_units.h"

namespace piton {

inline constexpr std::int64_t kBucketBytes = std::int64_t{32} << 20;  // UnitRules::bucket_bytes

class BucketedGradients {
 public:
  // Units of several parts are reduce-scattered (stage 1): after finish() only this rank's part is
  // valid. Units of one part are all-reduced (stage 0). Sets Parameter::gradient of every entry.
  // `units` and `groups` must outlive this object.
  BucketedGradients(const std::vector<ShardUnit>& units, const ReductionGroups& groups,
                    Device& device, Arena& arena, Stream& stream);

  // All gradients are 0 from here on. Each parameter will get Parameter::contributions x
  // `micro_batches` contributions.
  void begin_step(int micro_batches, Stream& stream);
  // Parameter::gradient, to add to. Its memory is zeroed when it is first asked for in a step, just
  // before a kernel adds to it: so the zeros are still in the caches.
  Tensor gradient(Parameter& parameter, Stream& stream);
  // The same, but without zeros where nobody has asked before in this step.
  GradientBuffer buffer(Parameter& parameter);
  // Counts one contribution, which is already added to Parameter::gradient. Starts the reductions
  // that it makes possible. Asserts that there are no more contributions than expected.
  void contribute(Parameter& parameter, Stream& stream);
  // Starts the reductions that have not started, sums tied parameters over their stages, and makes
  // `stream` wait for all.
  void finish(Stream& stream);

  // The gradient of a span, [span.size].
  Tensor part(const ShardSpan& span) const {
    return gradients_[span.unit].slice(0, span.unit_begin, span.size);
  }

 private:
  struct Place {
    std::size_t unit = 0;
    std::size_t entry = 0;
  };
  struct Progress {
    std::vector<std::int64_t> missing;  // contributions that are still expected, by entry
    std::vector<bool> zeroed;           // in this step, or to be overwritten; by entry
    int incomplete = 0;                 // entries that still expect contributions
    Event reduced;
  };
  // Zeroes an entry that nobody has asked for in this step.
  void zero_entry(std::size_t unit, std::size_t entry, Stream& stream);
  void zero_padding(std::size_t unit, Stream& stream);
  // Starts the next units if they are complete; with `finishing`, all units.
  void advance(bool finishing, Stream& stream);
  Tensor own_part(std::size_t unit) const;  // [part size]
  // Starts the sums over tensor ranks. The unit's reduction has to follow these events.
  std::vector<Event> sum_over_tensor(std::size_t unit, Stream& stream);

  const std::vector<ShardUnit>& units_;
  const ReductionGroups& groups_;
  Device* device_;
  Arena* arena_;
  std::vector<Tensor> gradients_;  // by unit, [size]
  std::map<const Parameter*, Place> places_;
  std::vector<Progress> progress_;  // by unit
  std::size_t next_ = 0;            // first unit that is not being reduced
};

// The dtype of gradients: fp64 if the values are fp64, else fp32.
DType gradient_dtype(const ShardUnit& unit);

}  // namespace piton
