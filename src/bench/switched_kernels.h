// Passes the calls of a session to one of two targets: to the back end itself while steps are
// timed, or to a Kernels that observes the calls of a single step. A session cannot change its
// Kernels, so this switch is inside them.
#pragma once

#include "kernels/kernels.h"

namespace piton {

class SwitchedKernels final : public Kernels {
 public:
  explicit SwitchedKernels(Kernels& inner) : inner_(inner), target_(&inner) {}

  std::string name() const override { return inner_.name(); }
  std::int64_t packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                            DType dtype) const override {
    return inner_.packed_bytes(form, out, in, dtype);
  }
  bool reads_codes() const override { return inner_.reads_codes(); }
  std::int64_t row_tile() const override { return inner_.row_tile(); }

  void send_to(Kernels& target) { target_ = &target; }
  void send_to_inner() { target_ = &inner_; }

 private:
  void submit(const KernelCall& call, Stream& stream) override { target_->run(call, stream); }

  Kernels& inner_;
  Kernels* target_;
};

}  // namespace piton
