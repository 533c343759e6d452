// ShardedParameters for inference. When a weight is first used in a packed form, that form replaces
// its plain rows, so there is one copy of each weight. Where the back end reads plain rows as fast
// (few rows of x), nothing is packed until a longer prompt comes.
#include "base/error.h"
#include "parallel/data_parallel.h"

namespace piton {
namespace {

class InferenceValues final : public ShardedParameters {
 public:
  InferenceValues(const std::vector<Parameter*>& parameters, Kernels& kernels, Arena& arena)
      : ShardedParameters(kernels), arena_(arena), forms_(kernels, arena) {
    for (Parameter* parameter : parameters) {
      if (!parameter->codes.given()) parameter->value = rows_of(*parameter);
      parameter->gradient = {};
    }
  }

  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) override {
    if (parameter.codes.given()) {
      WeightView view = forms_.get(parameter, {}, form, stream);
      makes_rows_ = makes_rows_ || view.form == WeightForm::kRows;
      return {std::move(view), nullptr};
    }
    if (parameter.keeps_rows) form = WeightForm::kRows;
    // Rows that went when they were packed: the packed form serves few rows as well.
    if (form == WeightForm::kRows && !parameter.value.defined()) form = WeightForm::kForward;
    WeightView view = forms_.get(parameter, parameter.value, form, stream);
    const bool packed = view.form != WeightForm::kRows;
    // A parameter with two uses is embedding and head: the embedding still reads plain rows.
    if (packed && parameter.contributions < 2) parameter.value = {};
    return {std::move(view), nullptr};
  }

  // Packed forms are made at the first use.
  bool keeps_forms() const override { return !makes_rows_; }

  Tensor gradient(Parameter& /*parameter*/, Stream& /*stream*/) override { return {}; }
  void contribute(Parameter& parameter, Stream& /*stream*/) override { refuse(parameter.name); }

  const std::vector<ShardUnit>& units() const override { return units_; }
  std::vector<OwnedSpan> owned() override { return {}; }
  void begin_step(int /*micro_batches*/, Stream& /*stream*/) override { refuse("a step"); }
  void finish_gradients(Stream& /*stream*/) override { refuse("a step"); }
  void publish_values(Stream& /*stream*/) override {}

  Tensor whole_value(Parameter& parameter, Stream& /*stream*/) override {
    PITON_ASSERT(parameter.value.defined(), "{}: its plain rows went when it was packed",
                 parameter.name);
    return parameter.value;
  }

  OwnValues own_values(Parameter& parameter) override {
    if (parameter.codes.given()) return {};
    forms_.drop(parameter, {});
    if (!parameter.value.defined()) parameter.value = rows_of(parameter);
    ++parameter.version;
    return {0, parameter.value.flatten()};
  }

 private:
  Tensor rows_of(const Parameter& parameter) {
    return arena_.allocate(parameter.dtype, parameter.shape, MemoryKind::kParameters);
  }
  static void refuse(const std::string& what) {
    PITON_ASSERT(false, "{}: these weights are for inference", what);
  }

  Arena& arena_;
  PackedForms forms_;
  bool makes_rows_ = false;       // of codes, for each use
  std::vector<ShardUnit> units_;  // nothing is sharded
};

}  // namespace

std::unique_ptr<ShardedParameters> ShardedParameters::make_inference(
    const std::vector<Parameter*>& parameters, Kernels& kernels, Arena& arena) {
  return std::make_unique<InferenceValues>(parameters, kernels, arena);
}

}  // namespace piton
