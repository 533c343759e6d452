// Another back end with one deliberate error, to show that a test detects it.
//
// After each call of the chosen kind, one of its outputs is wrong by a factor. A written tensor is
// scaled; for an updated tensor only the change is scaled, so that the error does not depend on the
// old values. A packed weight is opaque, so it is packed from scaled rows. Ids of logits, and the
// numbers and places of experts, are one too large; other integers are not perturbed.
#pragma once

#include <string>

#include "kernels/measured/forwarding_kernels.h"

namespace piton {

class PerturbedKernels final : public ForwardingKernels {
 public:
  // `inner` computes on host tensors at once and must outlive this. `call` is a kName, `tensor` the
  // name of a tensor that this call writes or updates, as in its tensors().
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
