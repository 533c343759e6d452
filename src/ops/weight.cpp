#include "ops/weight.h"

namespace piton {

WeightView PackedForms::get(Parameter& parameter, const Tensor& rows, WeightForm form,
                            Stream& stream) {
  WeightView view{.form = WeightForm::kRows,
                  .tensor = rows,
                  .out = rows.dim(0),
                  .in = rows.ndim() > 1 ? rows.dim(1) : 1,
                  .dtype = rows.dtype()};
  if (form == WeightForm::kRows) return view;
  const std::int64_t bytes = kernels_->packed_bytes(form, view.out, view.in, view.dtype);
  if (bytes == 0) return view;
  Packed& packed = packed_[{&parameter, form}];
  if (!packed.tensor.defined()) {
    packed.tensor = arena_->allocate(DType::kU8, {bytes}, MemoryKind::kParameters);
  }
  if (packed.version != parameter.version) {
    kernels_->run(PackWeight{.packed = packed.tensor, .rows = rows, .form = form}, stream);
    packed.version = parameter.version;
  }
  view.form = form;
  view.tensor = packed.tensor;
  return view;
}

WeightUse ResidentWeights::acquire(Parameter& parameter, WeightForm form, Stream& stream) {
  return {forms_.get(parameter, parameter.value, form, stream), nullptr};
}

Tensor ResidentWeights::gradient(Parameter& parameter, Stream& /*stream*/) {
  return parameter.gradient;
}

void ResidentWeights::contribute(Parameter& /*parameter*/, Stream& /*stream*/) {}

}  // namespace piton
