// Another back end with one deliberate error: what a test has to notice to be worth running.
//
// After each call of the chosen kind one of its outputs is wrong by a factor. A written tensor is
// scaled; of an updated one the change is scaled, so that the error does not depend on what was
// there. A packed weight is opaque: it is packed from scaled rows. Copies of integers are left
// alone.
#pragma once

#include <string>

#include "kernels/forwarding_kernels.h"

namespace piton {

class PerturbedKernels final : public ForwardingKernels {
 public:
  // `inner` computes on host tensors at once and must outlive this. `call` is a kName, `tensor` one
  // of the names that its tensors() gives to what it writes or updates.
  PerturbedKernels(Kernels& inner, std::string call, std::string tensor, double factor = 1.01)
      : ForwardingKernels(inner),
        call_(std::move(call)),
        tensor_(std::move(tensor)),
        factor_(factor) {}

  std::string name() const override { return "perturbed " + inner_.name(); }

  // How many calls were perturbed.
  std::int64_t perturbed() const { return perturbed_; }

 private:
  void submit(const KernelCall& call, Stream& stream) override;
  void run_perturbed(const KernelCall& call, const Tensor& tensor, Access access, Stream& stream);

  std::string call_;
  std::string tensor_;
  double factor_;
  std::int64_t perturbed_ = 0;
};

}  // namespace piton
