// Counts the calls of each kind that another back end runs.
#pragma once

#include <functional>

#include "kernels/measured/forwarding_kernels.h"
#include "kernels/meta/call_counts.h"

namespace piton {

class CountingKernels final : public ForwardingKernels {
 public:
  // `inner` must outlive it.
  explicit CountingKernels(Kernels& inner) : ForwardingKernels(inner) {}

  CallCounts& counts() { return counts_; }
  // Called after each call, which may still be under way.
  std::function<void(const KernelCall&)> after;

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    counts_.add(call);
    inner_.run(call, stream);
    if (after) after(call);
  }

  CallCounts counts_;
};

}  // namespace piton
