// Runs a host back end on a DelayedDevice. To the code above it behaves like the back end of a GPU.
//
// When a call is submitted, each of its tensors is translated to host addresses of the same bytes;
// the call itself runs later, on the stream's thread. So a missing wait computes with NaN, and a
// host tensor among the arguments fails an assertion.
#pragma once

#include <memory>
#include <mutex>

#include "device/host_device.h"
#include "kernels/measured/forwarding_kernels.h"

namespace piton {

class DelayedKernels final : public ForwardingKernels {
 public:
  // `inner` computes on host tensors; `device` holds the calls' tensors. Both must outlive every
  // stream passed to run().
  DelayedKernels(Kernels& inner, const Device& device);

  std::string name() const override { return "delayed " + inner_.name(); }

 private:
  void submit(const KernelCall& call, Stream& stream) override;

  const Device& device_;
  HostDevice host_;
  std::unique_ptr<Stream> inline_stream_;
  std::mutex mutex_;  // each stream has its own thread; `inner` is used by one at a time
};

}  // namespace piton
