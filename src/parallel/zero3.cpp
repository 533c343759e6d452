// Stage 3: of values, gradients and optimiser state each rank keeps its shard; rows are gathered
// around each use. Frozen parameters are sharded too.
#include "base/error.h"
#include "parallel/gathered_weights.h"
#include "parallel/scattered_gradients.h"
#include "parallel/zero_stages.h"

namespace piton {
namespace {

class ValueShards final : public ShardedParameters {
 public:
  ValueShards(ShardingSetup setup, Stream& stream)
      : setup_(std::move(setup)),
        data_(*setup_.groups.data),
        layout_(make_flat_layout(setup_.trainable, data_.size())),
        frozen_layout_(make_flat_layout(setup_.frozen, data_.size())),
        values_(layout_, data_.rank(), setup_.device, setup_.arena, stream),
        frozen_values_(frozen_layout_, data_.rank(), setup_.device, setup_.arena, stream),
        gradients_(layout_, setup_.groups, setup_.kernels, setup_.device, setup_.arena, stream),
        weights_({&layout_, &frozen_layout_}, {&values_, &frozen_values_}, data_, setup_.kernels,
                 setup_.arena) {
    for (const auto& list : {setup_.trainable, setup_.frozen}) {
      for (Parameter* parameter : list) parameter->value = {};
    }
  }

  const FlatLayout& layout() const override { return layout_; }

  WeightUse acquire(Parameter& parameter, WeightForm form, Stream& stream) override {
    return weights_.acquire(parameter, form, stream);
  }
  Tensor gradient(Parameter& parameter, Stream& stream) override {
    return parameter.trainable ? gradients_.gradient(parameter, stream) : Tensor();
  }
  void contribute(Parameter& parameter, Stream& stream) override {
    gradients_.contribute(parameter, stream);
  }

  std::vector<OwnedSpan> owned() override {
    std::vector<OwnedSpan> owned;
    for (const FlatSpan& span : spans_of_shard(layout_, data_.rank())) {
      owned.push_back({span, gradients_.part(span), values_.own(*span.parameter)});
    }
    return owned;
  }

  void begin_step(int /*micro_batches*/, Stream& stream) override {
    gradients_.begin_step(stream);
    weights_.begin_step();
  }
  void finish_gradients(Stream& stream) override { gradients_.finish(stream); }

  void publish_values(Stream& /*stream*/) override {
    weights_.invalidate();
    for (const FlatLayout* layout : {&layout_, &frozen_layout_}) {
      for (const FlatEntry& entry : layout->entries) ++entry.parameter->version;
    }
  }

  Tensor whole_value(Parameter& parameter, Stream& stream) override {
    return weights_.gather_now(parameter, stream);
  }

  void set_value(Parameter& parameter, const Tensor& rows, Stream& stream) override {
    PITON_ASSERT(rows.shape() == parameter.shape, "{} is {}, got {}", parameter.name,
                 to_string(parameter.shape), to_string(rows.shape()));
    const ShardValues& values = parameter.trainable ? values_ : frozen_values_;
    const Tensor own = values.own(parameter);
    if (!own.defined()) return;
    const Tensor part = rows.flatten().slice(0, values.own_offset(parameter), own.elements());
    setup_.kernels.run(Copy{.dst = own, .src = part}, stream);
  }

 private:
  ShardingSetup setup_;
  Communicator& data_;
  FlatLayout layout_;
  FlatLayout frozen_layout_;
  ShardValues values_;
  ShardValues frozen_values_;
  ScatteredGradients gradients_;
  GatheredWeights weights_;
};

}  // namespace

std::unique_ptr<ShardedParameters> make_zero3(ShardingSetup setup, Stream& stream) {
  return std::make_unique<ValueShards>(std::move(setup), stream);
}

}  // namespace piton
