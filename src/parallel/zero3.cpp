// Stage 3: of values, gradients and optimizer state each rank keeps its parts; rows are gathered
// around each use. Frozen parameters are sharded too.
#include <map>

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
        units_(make_shard_units(setup_.trainable, setup_.groups, {})),
        frozen_units_(make_shard_units(setup_.frozen, setup_.groups, {})),
        values_(units_, setup_.device, setup_.arena, stream),
        frozen_values_(frozen_units_, setup_.device, setup_.arena, stream),
        gradients_(units_, setup_.groups, setup_.kernels, setup_.device, setup_.arena, stream),
        weights_({{&units_, &values_}, {&frozen_units_, &frozen_values_}}, setup_.kernels,
                 setup_.arena) {
    for (const auto& list : {setup_.trainable, setup_.frozen}) {
      for (Parameter* parameter : list) parameter->value = {};
    }
    for (const ShardSpan& span : owned_spans(units_)) own_[span.parameter] = span;
    for (const ShardSpan& span : owned_spans(frozen_units_)) own_[span.parameter] = span;
  }

  const std::vector<ShardUnit>& units() const override { return units_; }

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
    for (const ShardSpan& span : owned_spans(units_)) {
      owned.push_back({span, gradients_.part(span), values_.part(span)});
    }
    return owned;
  }

  void begin_step(int /*micro_batches*/, Stream& stream) override {
    setup_.arena.settle(stream);
    gradients_.begin_step(stream);
    weights_.begin_step();
  }
  void finish_gradients(Stream& stream) override {
    gradients_.finish(stream);
    weights_.end_step();
  }

  void publish_values(Stream& stream) override {
    weights_.invalidate();
    for (Parameter* parameter : setup_.trainable) ++parameter->version;
    setup_.arena.settle(stream);
  }

  Tensor whole_value(Parameter& parameter, Stream& stream) override {
    return weights_.gather_now(parameter, stream);
  }

  void set_value(Parameter& parameter, const Tensor& rows, Stream& stream) override {
    PITON_ASSERT(rows.shape() == parameter.shape, "{} is {}, got {}", parameter.name,
                 to_string(parameter.shape), to_string(rows.shape()));
    ++parameter.version;
    const auto found = own_.find(&parameter);
    if (found == own_.end()) return;  // all of its part is padding
    const ShardSpan& span = found->second;
    const Tensor own = (parameter.trainable ? values_ : frozen_values_).part(span);
    const Tensor part = rows.flatten().slice(0, span.parameter_offset, span.size);
    setup_.kernels.run(Copy{.dst = own, .src = part}, stream);
  }

 private:
  ShardingSetup setup_;
  std::vector<ShardUnit> units_;
  std::vector<ShardUnit> frozen_units_;
  ShardValues values_;
  ShardValues frozen_values_;
  ScatteredGradients gradients_;
  GatheredWeights weights_;
  std::map<const Parameter*, ShardSpan> own_;  // at most one run of a parameter is in a part
};

}  // namespace

std::unique_ptr<ShardedParameters> make_zero3(ShardingSetup setup, Stream& stream) {
  return std::make_unique<ValueShards>(std::move(setup), stream);
}

}  // namespace piton
