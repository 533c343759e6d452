#include "ops/weight.h"

namespace piton {

WeightView PackedForms::get(Parameter& parameter, const Tensor& rows, WeightForm form,
                            Stream& stream) {
  const Shape& shape = parameter.shape;
  WeightView view{.form = WeightForm::kRows,
                  .tensor = rows,
                  .out = shape[0],
                  .in = shape.ndim() > 1 ? shape[1] : 1,
                  .dtype = parameter.dtype};
  const std::int64_t bytes =
      form == WeightForm::kRows ? 0 : kernels_->packed_bytes(form, view.out, view.in, view.dtype);
  if (bytes > 0) {
    Packed& packed = packed_[{&parameter, form}];
    if (packed.version != parameter.version) {
      PITON_ASSERT(rows.defined(), "{}: no rows to pack", parameter.name);
      if (!packed.tensor.defined()) {
        packed.tensor = arena_->allocate(DType::kU8, {bytes}, kind_, stream);
      }
      kernels_->run(PackWeight{.packed = packed.tensor, .rows = rows, .form = form}, stream);
      packed.version = parameter.version;
    }
    view.form = form;
    view.tensor = packed.tensor;
  }
  PITON_ASSERT(view.tensor.defined(), "{}: its plain rows went when it was packed", parameter.name);
  return view;
}

void PackedForms::drop(const Parameter& parameter, const Event& used) {
  for (const WeightForm form : {WeightForm::kForward, WeightForm::kBackward}) {
    const auto found = packed_.find({&parameter, form});
    if (found == packed_.end()) continue;
    arena_->hold(found->second.tensor, used.fence());
    packed_.erase(found);
  }
}

WeightUse ResidentWeights::acquire(Parameter& parameter, WeightForm form, Stream& stream) {
  return {forms_.get(parameter, parameter.value, form, stream), nullptr};
}

Tensor ResidentWeights::gradient(Parameter& parameter, Stream& /*stream*/) {
  return parameter.gradient;
}

void ResidentWeights::contribute(Parameter& /*parameter*/, Stream& /*stream*/) {}

}  // namespace piton
