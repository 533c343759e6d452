// The meta back end: counts operations and bytes and computes nothing.
#include "kernels/meta/kernels.h"

namespace piton {

std::string MetaKernels::name() const { return like_ ? "meta, as " + like_->name() : "meta"; }

std::int64_t MetaKernels::packed_bytes(WeightForm form, std::int64_t out, std::int64_t in,
                                       DType dtype) const {
  return like_ ? like_->packed_bytes(form, out, in, dtype) : 0;
}

WeightForm MetaKernels::forward_form(std::int64_t rows, std::int64_t in, DType dtype) const {
  return like_ ? like_->forward_form(rows, in, dtype) : WeightForm::kForward;
}

WeightForm MetaKernels::frozen_form(WeightForm form, DType dtype) const {
  return like_ ? like_->frozen_form(form, dtype) : form;
}

bool MetaKernels::reads_codes() const { return like_ && like_->reads_codes(); }

bool MetaKernels::attends_to_latents(std::int64_t latents, std::int64_t shared) const {
  return like_ && like_->attends_to_latents(latents, shared);
}

std::string MetaKernels::float8_obstacle(Float8Recipe recipe) const {
  return like_ ? like_->float8_obstacle(recipe) : Kernels::float8_obstacle(recipe);
}

bool MetaKernels::gates_in_product(std::int64_t rows, DType dtype) const {
  return like_ && like_->gates_in_product(rows, dtype);
}

std::int64_t MetaKernels::workspace_bytes(const KernelCall& call) const {
  return like_ ? like_->workspace_bytes(call) : 0;
}

std::int64_t MetaKernels::row_tile() const { return like_ ? like_->row_tile() : 1; }

std::int64_t MetaKernels::full_speed_rows() const {
  return like_ ? like_->full_speed_rows() : Kernels::full_speed_rows();
}

void MetaKernels::submit(const KernelCall& call, Stream& stream) {
  counts_.add(call);
  if (workspace_ == nullptr) return;
  const std::int64_t bytes = workspace_bytes(call);
  if (bytes > 0) workspace_->allocate(DType::kU8, {bytes}, MemoryKind::kWorkspace, stream);
}

}  // namespace piton
