// Another back end, seen through: the base of what counts, times, records or delays its calls.
#pragma once

#include "kernels/kernels.h"

namespace piton {

// Answers as the inner back end does; what becomes of a call is the derived class's.
class ForwardingKernels : public Kernels {
 public:
  // `inner` must outlive it.
  explicit ForwardingKernels(Kernels& inner) : inner_(inner) {}

  std::string name() const override { return inner_.name(); }
  std::string choice() const override { return inner_.choice(); }
  std::int64_t packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                            DType dtype) const final {
    return inner_.packed_bytes(form, out, in, dtype);
  }
  bool reads_codes() const final { return inner_.reads_codes(); }
  std::int64_t row_tile() const final { return inner_.row_tile(); }

 protected:
  Kernels& inner_;
};

}  // namespace piton
