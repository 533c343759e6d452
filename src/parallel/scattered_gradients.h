// Gradients of ZeRO stages 2 and 3: this rank's part of every unit, fp32 (fp64). The contributions
// of one micro-batch to a unit are added up in a temporary for the whole unit, reduce-scattered,
// and added to this rank's part.
//
// Temporaries that are being reduced form a queue. Reductions start, and their results are added,
// in the order in which units get their last contribution, which is the same on every rank of the
// group. While the queue has more than kMaxOnTheWay units, or several units of together more than
// kMaxOnTheWayBytes, compute waits for the oldest. This depends on number and size alone, not on
// what has completed.
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

  // `units` and `groups` must outlive this object.
  ScatteredGradients(const std::vector<ShardUnit>& units, const ReductionGroups& groups,
                     Kernels& kernels, Device& device, Arena& arena, Stream& stream);

  void begin_step(Stream& stream);
  // The parameter's place in the temporary of the current micro-batch. A new temporary is zero.
  Tensor gradient(Parameter& parameter, Stream& stream);
  void contribute(Parameter& parameter, Stream& stream);
  // Reduces the remaining temporaries, sums tied parameters over their stages, and makes `stream`
  // wait for all.
  void finish(Stream& stream);

  Tensor part(const ShardSpan& span) const;

 private:
  struct Place {
    std::size_t unit = 0;
    std::size_t entry = 0;
  };
  struct Collecting {
    Tensor whole;
    std::vector<int> missing;  // contributions of the micro-batch that are still expected, by entry
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
