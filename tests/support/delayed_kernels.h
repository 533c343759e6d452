// A host back end behind a DelayedDevice: what a GPU's back end is to the floors above, for tests.
//
// Every tensor of a call is translated to the host's view of the same bytes when the call is
// submitted; the call itself runs later, on the stream's thread. So a missing wait computes from
// NaN, and a host tensor among the arguments is an assertion.
#pragma once

#include <memory>
#include <mutex>

#include "device/host_device.h"
#include "kernels/forwarding_kernels.h"

namespace piton {

class DelayedKernels final : public ForwardingKernels {
 public:
  // `inner` computes on host tensors; `device` is where the calls' tensors live. Both must outlive
  // every stream that was given to run().
  DelayedKernels(Kernels& inner, const Device& device);

  std::string name() const override { return "delayed " + inner_.name(); }

 private:
  void submit(const KernelCall& call, Stream& stream) override;

  const Device& device_;
  HostDevice host_;
  std::unique_ptr<Stream> inline_stream_;
  std::mutex mutex_;  // streams have threads of their own, `inner` is used by one at a time
};

}  // namespace piton
