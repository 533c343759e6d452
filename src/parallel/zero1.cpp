// Stage 1: values and gradients are whole; each rank gets the sums of its own shard, updates it,
// and the new values are gathered.
#include "parallel/bucketed_gradients.h"
#include "parallel/zero_stages.h"

namespace piton {
namespace {

class OptimizerShards final : public ResidentValues {
 public:
  OptimizerShards(ShardingSetup setup, int ranks, Stream& stream)
      : ResidentValues(std::move(setup), ranks, stream),
        gradients_(layout_, setup_.groups, /*scatter=*/true, setup_.device, setup_.arena, stream) {}

  Tensor gradient(Parameter& parameter, Stream& /*stream*/) override {
    return parameter.trainable ? parameter.gradient : Tensor();
  }
  void contribute(Parameter& parameter, Stream& stream) override {
    gradients_.contribute(parameter, stream);
  }

  std::vector<OwnedSpan> owned() override {
    std::vector<OwnedSpan> owned;
    for (const FlatSpan& span : spans_of_shard(layout_, setup_.groups.data->rank())) {
      owned.push_back({span, gradients_.part(span), values_.part(span)});
    }
    return owned;
  }

  void begin_step(int micro_batches, Stream& stream) override {
    gradients_.begin_step(micro_batches, stream);
  }
  void finish_gradients(Stream& stream) override { gradients_.finish(stream); }

 private:
  BucketedGradients gradients_;
};

}  // namespace

std::unique_ptr<ShardedParameters> make_zero1(ShardingSetup setup, Stream& stream) {
  const int ranks = setup.groups.data->size();
  return std::make_unique<OptimizerShards>(std::move(setup), ranks, stream);
}

}  // namespace piton
