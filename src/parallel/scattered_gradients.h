// Gradients of stages 2 and 3: this rank's shard, fp32 (fp64). A parameter's contribution of one
// micro-batch is collected in a temporary of its whole local shape, reduce-scattered, and added to
// the shard.
//
// Temporaries on their way are a queue: reductions start and are added in the order in which their
// contributions became complete, which is the same on every rank of the data group. At most
// kMaxOnTheWay wait, then compute waits for the oldest.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "device/device.h"
#include "kernels/kernels.h"
#include "parallel/flat_layout.h"
#include "parallel/reduction_groups.h"

namespace piton {

class ScatteredGradients {
 public:
  static constexpr std::size_t kMaxOnTheWay = 4;

  // `layout` has a shard for each rank of groups.data. Both outlive it.
  ScatteredGradients(const FlatLayout& layout, const ReductionGroups& groups, Kernels& kernels,
                     Device& device, Arena& arena, Stream& stream);

  void begin_step(Stream& stream);
  // The temporary of the micro-batch that is under way; zero when it is new.
  Tensor gradient(Parameter& parameter, Stream& stream);
  void contribute(Parameter& parameter, Stream& stream);
  // Reduces what is left, sums tied parameters, and makes `stream` wait for all.
  void finish(Stream& stream);

  Tensor part(const FlatSpan& span) const;

 private:
  struct Collecting {
    Tensor whole;
    int contributions = 0;
  };
  struct OnTheWay {
    std::size_t entry = 0;
    Tensor whole;
    bool over_tensor = false;
    Event tensor_sum;
    bool scattering = false;
    Event scattered;
  };
  void submit(std::size_t entry, Stream& stream);
  // Moves the queue on; leaves at most `most` in it, waiting if need be.
  void advance(std::size_t most, Stream& stream);
  void scatter(OnTheWay& one, Stream& stream);
  void add(const OnTheWay& one, Stream& stream);
  void sum_tied(Parameter& parameter, Communicator& stages, Stream& stream);
  std::int64_t own_begin(std::size_t entry) const;  // of this rank's run, in the parameter
  std::int64_t own_size(std::size_t entry) const;

  const FlatLayout& layout_;
  const ReductionGroups& groups_;
  Kernels* kernels_;
  Device* device_;
  Arena* arena_;
  DType dtype_;
  Tensor shard_;
  std::map<const Parameter*, std::size_t> entry_of_;
  std::vector<Collecting> collecting_;  // by entry
  std::deque<OnTheWay> queue_;
};

}  // namespace piton
