// Weights that are only read: a weight that multiplies is held in the form that multiplies.
#include <map>

#include "base/error.h"
#include "parallel/data_parallel.h"

namespace piton {
namespace {

class InferenceValues final : public ShardedParameters {
 public:
  InferenceValues(const std::vector<Parameter*>& parameters, Kernels& kernels, Arena& arena)
      : parameters_(parameters), kernels_(kernels), arena_(arena) {
    for (Parameter* parameter : parameters_) {
      parameter->value = rows_of(*parameter);
      parameter->gradient = {};
    }
  }

  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) override {
    WeightView view{.form = form,
                    .tensor = parameter.value,
                    .out = parameter.shape[0],
                    .in = parameter.shape.ndim() > 1 ? parameter.shape[1] : 1,
                    .dtype = parameter.dtype};
    const std::int64_t bytes =
        form == WeightForm::kRows ? 0 : kernels_.packed_bytes(form, view.out, view.in, view.dtype);
    if (bytes == 0) {
      view.form = WeightForm::kRows;
      assert_rows(parameter);
      return {std::move(view), nullptr};
    }
    Tensor& packed = packed_[{&parameter, form}];
    if (!packed.defined()) {
      assert_rows(parameter);
      packed = arena_.allocate(DType::kU8, {bytes}, MemoryKind::kParameters);
      kernels_.run(PackWeight{.packed = packed, .rows = parameter.value, .form = form}, stream);
      if (parameter.contributions < 2) parameter.value = {};  // no table looks rows up in it
    }
    view.tensor = packed;
    return {std::move(view), nullptr};
  }

  Tensor gradient(Parameter& /*parameter*/, Stream& /*stream*/) override { return {}; }
  void contribute(Parameter& parameter, Stream& /*stream*/) override { refuse(parameter.name); }

  const FlatLayout& layout() const override { return layout_; }
  std::vector<OwnedSpan> owned() override { return {}; }
  void begin_step(int /*micro_batches*/, Stream& /*stream*/) override { refuse("a step"); }
  void finish_gradients(Stream& /*stream*/) override { refuse("a step"); }
  void publish_values(Stream& /*stream*/) override {
    for (Parameter* parameter : parameters_) ++parameter->version;
  }

  Tensor whole_value(Parameter& parameter, Stream& /*stream*/) override {
    assert_rows(parameter);
    return parameter.value;
  }

  void set_value(Parameter& parameter, const Tensor& rows, Stream& stream) override {
    PITON_ASSERT(rows.shape() == parameter.shape, "{} is {}, got {}", parameter.name,
                 to_string(parameter.shape), to_string(rows.shape()));
    std::erase_if(packed_, [&](const auto& one) { return one.first.first == &parameter; });
    if (!parameter.value.defined()) parameter.value = rows_of(parameter);
    kernels_.run(Copy{.dst = parameter.value, .src = rows}, stream);
  }

 private:
  Tensor rows_of(const Parameter& parameter) {
    return arena_.allocate(parameter.dtype, parameter.shape, MemoryKind::kParameters);
  }
  static void assert_rows(const Parameter& parameter) {
    PITON_ASSERT(parameter.value.defined(), "{}: its plain rows went when it was packed",
                 parameter.name);
  }
  static void refuse(const std::string& what) {
    PITON_ASSERT(false, "{}: these weights are for inference", what);
  }

  std::vector<Parameter*> parameters_;
  Kernels& kernels_;
  Arena& arena_;
  FlatLayout layout_;  // nothing is sharded
  std::map<std::pair<const Parameter*, WeightForm>, Tensor> packed_;
};

}  // namespace

std::unique_ptr<ShardedParameters> ShardedParameters::make_inference(
    const std::vector<Parameter*>& parameters, Kernels& kernels, Arena& arena) {
  return std::make_unique<InferenceValues>(parameters, kernels, arena);
}

}  // namespace piton
