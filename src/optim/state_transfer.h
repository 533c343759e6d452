// Updates of optimizer state that is kept elsewhere (device/offload_target.h) and passes through a
// few buffers of the device.
//
//   job             i - 1             i              i + 1
//   read ahead                                  elsewhere -> buffer      a stream
//   update                          buffer                               compute
//   write behind    buffer -> elsewhere                                  a stream
//
// Buffers come from the device's arena, which is nearly empty during an update: a job's tensors are
// workspace from the start of its read to the end of its write. So about three jobs are in memory
// at a time, whatever the size of the state.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "device/offload_target.h"

namespace piton {

class StateTransfer {
 public:
  // All arguments must outlive it.
  StateTransfer(Device& device, Arena& arena, OffloadTarget& target);

  struct Job {
    std::vector<Tensor> state;  // elsewhere, each [n]; all are written back
    bool reads = true;          // false: `update` writes all of it
    // Enqueues the update of the tensors that replace `state`, in that order.
    std::function<void(const std::vector<Tensor>& here)> update;
  };
  // Runs the jobs in order. No tensor is in two jobs. `stream` waits for the last write. Throws
  // Error(kData) if a file cannot be read or written; the state is then undefined.
  void run(const std::vector<Job>& jobs, Stream& stream);

  OffloadTarget& target() { return target_; }

 private:
  struct Here {
    std::vector<Tensor> tensors;
    Event arrived;
  };
  Here read(const Job& job, Stream& stream);
  Event write(const Job& job, const Here& here, Stream& stream);

  Arena& arena_;
  OffloadTarget& target_;
  std::unique_ptr<Stream> reads_;
  std::unique_ptr<Stream> writes_;
};

}  // namespace piton
