// Records every kernel call of another back end as an event of a trace.
//
// Times are taken in the order of the stream, so those of a device are the times at which the call
// ran there, not those at which it was enqueued.
#pragma once

#include <map>
#include <memory>

#include "base/trace_events.h"
#include "kernels/measured/forwarding_kernels.h"

namespace piton {

class TracedKernels final : public ForwardingKernels {
 public:
  // `inner` must outlive it.
  TracedKernels(Kernels& inner, std::shared_ptr<TraceEvents> events)
      : ForwardingKernels(inner), events_(std::move(events)) {}

 private:
  void submit(const KernelCall& call, Stream& stream) override;
  int row_of(const Stream& stream);

  std::shared_ptr<TraceEvents> events_;
  std::map<const void*, int> rows_;  // by identity of the stream
};

}  // namespace piton
