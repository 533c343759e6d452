// Stage 0: every rank holds everything, sums all gradients and makes the whole update.
#include "parallel/bucketed_gradients.h"
#include "parallel/zero_stages.h"

namespace piton {
namespace {

class Replicated final : public ResidentValues {
 public:
  Replicated(ShardingSetup setup, Stream& stream)
      : ResidentValues(std::move(setup), /*shards=*/1, stream),
        gradients_(layout_, setup_.groups, /*scatter=*/false, setup_.device, setup_.arena, stream) {
  }

  Tensor gradient(Parameter& parameter, Stream& /*stream*/) override {
    return parameter.trainable ? parameter.gradient : Tensor();
  }
  void contribute(Parameter& parameter, Stream& stream) override {
    gradients_.contribute(parameter, stream);
  }

  std::vector<OwnedSpan> owned() override {
    std::vector<OwnedSpan> owned;
    for (const FlatSpan& span : spans_of_shard(layout_, 0)) {
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

std::unique_ptr<ShardedParameters> make_replicated(ShardingSetup setup, Stream& stream) {
  return std::make_unique<Replicated>(std::move(setup), stream);
}

}  // namespace piton
