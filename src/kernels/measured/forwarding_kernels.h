// Base class of decorators that count, time, record or delay the calls of another back end.
#pragma once

#include "kernels/kernels.h"

namespace piton {

// Forwards all queries to the inner back end. A derived class implements submit().
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
  WeightForm forward_form(std::int64_t rows, std::int64_t in, DType dtype) const final {
    return inner_.forward_form(rows, in, dtype);
  }
  WeightForm frozen_form(WeightForm form, DType dtype) const final {
    return inner_.frozen_form(form, dtype);
  }
  bool reads_codes() const final { return inner_.reads_codes(); }
  bool attends_to_latents(std::int64_t latents, std::int64_t shared) const final {
    return inner_.attends_to_latents(latents, shared);
  }
  std::string float8_obstacle(Float8Recipe recipe) const final {
    return inner_.float8_obstacle(recipe);
  }
  bool gates_in_product(std::int64_t rows, DType dtype) const final {
    return inner_.gates_in_product(rows, dtype);
  }
  std::int64_t workspace_bytes(const KernelCall& call) const final {
    return inner_.workspace_bytes(call);
  }
  Arena* set_workspace(Arena* workspace) override { return inner_.set_workspace(workspace); }
  std::int64_t row_tile() const final { return inner_.row_tile(); }
  std::int64_t full_speed_rows() const final { return inner_.full_speed_rows(); }

 protected:
  Kernels& inner_;
};

}  // namespace piton
