// Another back end, counted: how many calls of each kind a step makes.
#pragma once

#include "kernels/call_counts.h"

namespace piton {

class CountingKernels final : public Kernels {
 public:
  // `inner` must outlive it.
  explicit CountingKernels(Kernels& inner) : inner_(inner) {}

  std::string name() const override { return inner_.name(); }
  std::int64_t packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                            DType dtype) const override {
    return inner_.packed_bytes(form, out, in, dtype);
  }
  bool reads_codes() const override { return inner_.reads_codes(); }
  std::int64_t row_tile() const override { return inner_.row_tile(); }

  CallCounts& counts() { return counts_; }

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    counts_.add(call);
    inner_.run(call, stream);
  }

  Kernels& inner_;
  CallCounts counts_;
};

}  // namespace piton
