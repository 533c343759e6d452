// ZeRO stage 3: every rank holds only its parts of values, gradients and optimizer state. Values
// are gathered around each use. Frozen parameters are sharded too.
#include "base/error.h"
#include "parallel/gathered_weights.h"
#include "parallel/scattered_gradients.h"
#include "parallel/zero_stages.h"

namespace piton {
namespace {

class ValueShards final : public ShardedParameters {
 public:
  ValueShards(ShardingSetup setup, Stream& stream)
      : ShardedParameters(setup.kernels),
        setup_(std::move(setup)),
        units_(make_shard_units(setup_.trainable, setup_.groups, {})),
        frozen_units_(make_shard_units(setup_.frozen, setup_.groups, {})),
        values_(units_, setup_.device, setup_.arena, stream),
        frozen_values_(frozen_units_, setup_.device, setup_.arena, stream),
        gradients_(units_, setup_.groups, {setup_.kernels, setup_.device, setup_.arena, stream}),
        weights_({{&units_, &values_}, {&frozen_units_, &frozen_values_}}, setup_.kernels,
                 setup_.arena) {
    for (const auto& list : {setup_.trainable, setup_.frozen}) {
      for (Parameter* parameter : list) parameter->value = {};
    }
    own_.add(units_, values_);
    own_.add(frozen_units_, frozen_values_);
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

  std::vector<OwnedSpan> owned() override { return owned_parts(units_, gradients_, values_); }

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

  OwnValues own_values(Parameter& parameter) override {
    ++parameter.version;
    return own_.of(parameter);
  }

 private:
  ShardingSetup setup_;
  std::vector<ShardUnit> units_;
  std::vector<ShardUnit> frozen_units_;
  ShardValues values_;
  ShardValues frozen_values_;
  ScatteredGradients gradients_;
  GatheredWeights weights_;
  OwnParts own_;
};

}  // namespace

std::unique_ptr<ShardedParameters> make_zero3(ShardingSetup setup, Stream& stream) {
  return std::make_unique<ValueShards>(std::move(setup), stream);
}

}  // namespace piton
