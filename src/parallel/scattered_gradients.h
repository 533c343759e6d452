// Gradients of stages 2 and 3: this rank's part of every unit, fp32 (fp64). A unit's contributions
// of one micro-batch are collected in a temporary of its whole size, reduce-scattered, and added to
// the part.
//
// Temporaries under way are a queue: reductions start and are added in the order in which their
// contributions became complete, which is the same on every rank of the group. At most kMaxOnTheWay
// units wait, and no more than kMaxOnTheWayBytes but for one; then compute waits for the oldest: by
// number and size, not by what happens to be complete.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "device/device.h"
#include "kernels/kernels.h"
#include "parallel/reduction_groups.h"
#include "parallel/shard_units.h"

namespace piton {

class ScatteredGradients {
 public:
  static constexpr std::size_t kMaxOnTheWay = 4;
  static constexpr std::int64_t kMaxOnTheWayBytes = std::int64_t{64} << 20;

  // `units` and `groups` outlive it.
  ScatteredGradients(const std::vector<ShardUnit>& units, const ReductionGroups& groups,
                     Kernels& kernels, Device& device, Arena& arena, Stream& stream);

  void begin_step(Stream& stream);
  // The parameter's place in the temporary of the micro-batch that is under way; zero when it is
  // new.
  Tensor gradient(Parameter& parameter, Stream& stream);
  void contribute(Parameter& parameter, Stream& stream);
  // Reduces what is left, sums tied parameters, and makes `stream` wait for all.
  void finish(Stream& stream);

  Tensor part(const ShardSpan& span) const;

 private:
  struct Place {
    std::size_t unit = 0;
    std::size_t entry = 0;
  };
  struct Collecting {
    Tensor whole;
    std::vector<int> missing;  // contributions of a micro-batch, by entry
    int incomplete = 0;
  };
  struct OnTheWay {
    std::size_t unit = 0;
    Tensor whole;
    Event scattered;
  };
  void submit(std::size_t unit, Stream& stream);
  // Adds the oldest until at most `most` units are under way, and not too many bytes.
  void drain(std::size_t most, Stream& stream);
  Tensor own_part(std::size_t unit, const Tensor& whole) const;

  const std::vector<ShardUnit>& units_;
  const ReductionGroups& groups_;
  Kernels* kernels_;
  Device* device_;
  Arena* arena_;
  std::vector<Tensor> parts_;  // by unit, [part size]
  std::map<const Parameter*, Place> places_;
  std::vector<Collecting> collecting_;  // by unit
  std::deque<OnTheWay> queue_;
  std::int64_t queued_bytes_ = 0;
};

}  // namespace piton
