// Gradients of stages 0 and 1: buffers that collect a step's contributions, reduced unit by unit
// while backward goes on.
//
// Units start in their order, where backward begins, whatever the order in which they are
// completed: every rank of a group must start the same reductions in the same order. Sums over
// tensor ranks start in program order, when their unit's turn has come (the layers' own collectives
// share that group); the unit's own reduction is started right after them and follows their events.
// Neither makes compute wait before finish().
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "device/device.h"
#include "parallel/reduction_groups.h"
#include "parallel/shard_units.h"

namespace piton {

inline constexpr std::int64_t kBucketBytes = std::int64_t{32} << 20;

class BucketedGradients {
 public:
  // Units of several parts are reduce-scattered: after finish() each rank's part is valid (stage
  // 1). Units of one part are all-reduced (stage 0). Sets Parameter::gradient of every entry.
  // `units` and `groups` outlive it.
  BucketedGradients(const std::vector<ShardUnit>& units, const ReductionGroups& groups,
                    Device& device, Arena& arena, Stream& stream);

  void begin_step(int micro_batches, Stream& stream);
  // Asserts that no more come than begin_step() was told.
  void contribute(Parameter& parameter, Stream& stream);
  // Starts what has not, sums tied parameters, and makes `stream` wait for all.
  void finish(Stream& stream);

  Tensor part(const ShardSpan& span) const {
    return gradients_[span.unit].slice(0, span.unit_begin, span.size);
  }

 private:
  struct Place {
    std::size_t unit = 0;
    std::size_t entry = 0;
  };
  struct Progress {
    std::vector<std::int64_t> missing;  // contributions, by entry
    int incomplete = 0;                 // entries that still expect contributions
    Event reduced;
  };
  // Starts the units whose turn has come; with `finishing`, all.
  void advance(bool finishing, Stream& stream);
  Tensor own_part(std::size_t unit) const;
  // Over tensor ranks; what is summed further follows the events.
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

// fp64 if the values are fp64, else fp32.
DType gradient_dtype(const ShardUnit& unit);

}  // namespace piton
