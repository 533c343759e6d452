#include "ops/weight.h"

namespace piton {

WeightView PackedForms::get(Parameter& parameter, const Tensor& rows, WeightForm form,
                            Stream& stream) {
  const Shape& shape = parameter.shape;
  WeightView view{.form = WeightForm::kRows,
                  .tensor = rows,
                  .out = shape[0] / parameter.matrices,
                  .in = shape.ndim() > 1 ? shape[1] : 1,
                  .dtype = parameter.dtype,
                  .matrices = parameter.matrices};
  if (parameter.codes.given() && form != WeightForm::kRows && kernels_->reads_codes()) {
    view.form = WeightForm::kCodes;
    view.tensor = {};
    view.codes = parameter.codes;
    return view;
  }
  if (!parameter.trainable && form != WeightForm::kRows) {
    if (frozen_ == FrozenForms::kFewest) form = kernels_->frozen_form(form, view.dtype);
    if (frozen_ == FrozenForms::kRows) form = WeightForm::kRows;
  }
  const std::int64_t bytes =
      form == WeightForm::kRows
          ? 0
          : view.matrices * kernels_->packed_bytes(form, view.out, view.in, view.dtype);
  if (bytes == 0) {
    view.tensor = plain_rows(parameter, rows, stream);
    PITON_ASSERT(view.tensor.defined(), "{}: its plain rows went when it was packed",
                 parameter.name);
    return view;
  }
  Packed& packed = packed_[{&parameter, form}];
  if (packed.version != parameter.version) {
    const Tensor plain = plain_rows(parameter, rows, stream);
    PITON_ASSERT(plain.defined(), "{}: no rows to pack", parameter.name);
    if (!packed.tensor.defined()) {
      packed.tensor = arena_->allocate(DType::kU8, {bytes}, kind_, stream);
    }
    kernels_->run(
        PackWeight{.packed = packed.tensor, .rows = plain, .form = form, .matrices = view.matrices},
        stream);
    packed.version = parameter.version;
  }
  view.form = form;
  view.tensor = packed.tensor;
  return view;
}

Tensor PackedForms::plain_rows(const Parameter& parameter, const Tensor& rows, Stream& stream) {
  if (!parameter.codes.given()) return rows;
  const Tensor made =
      arena_->allocate(parameter.dtype, parameter.shape, MemoryKind::kWorkspace, stream);
  kernels_->run(ExpandWeight{.rows = made, .codes = parameter.codes}, stream);
  return made;
}

void PackedForms::drop(const Parameter& parameter, const Event& used) {
  for (const WeightForm form : {WeightForm::kForward, WeightForm::kBackward}) {
    const auto found = packed_.find({&parameter, form});
    if (found == packed_.end()) continue;
    arena_->hold(found->second.tensor, used.fence());
    packed_.erase(found);
  }
}

WeightUse acquire_forward(WeightProvider& weights, Parameter& parameter, std::int64_t rows,
                          const Kernels& kernels, Stream& stream) {
  const bool plain = parameter.shape.ndim() == 2 && !parameter.codes.given();
  return weights.acquire(parameter,
                         plain ? kernels.forward_form(rows, parameter.shape[1], parameter.dtype)
                               : WeightForm::kForward,
                         stream);
}

WeightUse ResidentWeights::acquire(Parameter& parameter, WeightForm form, Stream& stream) {
  return {forms_.get(parameter, parameter.value, form, stream), nullptr};
}

Tensor ResidentWeights::gradient(Parameter& parameter, Stream& /*stream*/) {
  return parameter.gradient;
}

void ResidentWeights::contribute(Parameter& /*parameter*/, Stream& /*stream*/) {}

}  // namespace piton
