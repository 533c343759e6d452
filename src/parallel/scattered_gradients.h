// Gradients of ZeRO stages 2 and 3: each rank stores its part of every unit, in fp32 (fp64 for fp64
// weights). The contributions of one micro-batch to a unit are added up in a temporary tensor for
// the whole unit, which is reduce-scattered. The result is added to this rank's part.
//
// Temporaries that are being reduced form a queue. Reductions start, and their results are added,
// in the order in which units get their last contribution, which is the same on every rank of the
// group. While the queue has more than kMaxOnTheWay units, or more than one unit and more than
// kMaxOnTheWayBytes, compute waits for the oldest reduction. This depends only on number and size
// of the units, not on timing, so that memory use is the same in every step.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "device/device.h"
#include "kernels/compute_context.h"
#include "parallel/reduction_groups.h"
#include "parallel/shard_units.h"

namespace piton {

class ScatteredGradients {
 public:
  static constexpr std::size_t kMaxOnTheWay = 4;
  static constexpr std::int64_t kMaxOnTheWayBytes = std::int64_t{64} << 20;

  // `units`, `groups` and `compute` (its stream excepted) must outlive this object.
  ScatteredGradients(const std::vector<ShardUnit>& units, const ReductionGroups& groups,
                     const ComputeContext& compute);

  void begin_step(Stream& stream);
  // The parameter's rows of the temporary of the current micro-batch, in the local shape of the
  // parameter. Contributions are added to them. A new temporary is zero.
  Tensor gradient(Parameter& parameter, Stream& stream);
  // Counts one contribution. After the last one of a unit, its reduction starts.
  void contribute(Parameter& parameter, Stream& stream);
  // Reduces the remaining temporaries, sums tied parameters over their stages, and makes `stream`
  // wait for all.
  void finish(Stream& stream);

  // The gradient of a span, [span.size].
  Tensor part(const ShardSpan& span) const;

 private:
  struct Place {
    std::size_t unit = 0;
    std::size_t entry = 0;
  };
  struct Collecting {
    Tensor whole;              // the temporary, [unit size]
    std::vector<int> missing;  // contributions of the micro-batch that are still expected, by entry
    int incomplete = 0;        // entries that still expect contributions
  };
  struct OnTheWay {
    std::size_t unit = 0;
    Tensor whole;  // the temporary, [unit size]; after `scattered`, own_part() of it is the sum
    Event scattered;
  };
  // Starts the reduction of a unit and puts it into the queue.
  void submit(std::size_t unit, Stream& stream);
  // Waits for the oldest reductions and adds their results, until the queue has at most `most`
  // units, and at most one unit or kMaxOnTheWayBytes.
  void drain(std::size_t most, Stream& stream);
  // whole: [unit size]. Returns this rank's part, [part size].
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
