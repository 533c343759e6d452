// Stages 0 and 1: values and gradients are whole on every rank. In stage 0 each rank gets all sums
// and makes the whole update; in stage 1 it gets the sums of its own shard, updates that, and the
// new values are gathered.
#include "parallel/bucketed_gradients.h"
#include "parallel/zero_stages.h"

namespace piton {
namespace {

class WholeGradients final : public ResidentValues {
 public:
  // `shards`: 1, or one for each rank of the data group; `shard` is the one that this rank updates.
  WholeGradients(ShardingSetup setup, int shards, int shard, bool scatter, Stream& stream)
      : ResidentValues(std::move(setup), shards, stream),
        shard_(shard),
        gradients_(layout_, setup_.groups, scatter, setup_.device, setup_.arena, stream) {}

  Tensor gradient(Parameter& parameter, Stream& /*stream*/) override {
    return parameter.trainable ? parameter.gradient : Tensor();
  }
  void contribute(Parameter& parameter, Stream& stream) override {
    gradients_.contribute(parameter, stream);
  }

  std::vector<OwnedSpan> owned() override {
    std::vector<OwnedSpan> owned;
    for (const FlatSpan& span : spans_of_shard(layout_, shard_)) {
      owned.push_back({span, gradients_.part(span), values_.part(span)});
    }
    return owned;
  }

  void begin_step(int micro_batches, Stream& stream) override {
    gradients_.begin_step(micro_batches, stream);
  }
  void finish_gradients(Stream& stream) override { gradients_.finish(stream); }

 private:
  int shard_;
  BucketedGradients gradients_;
};

}  // namespace

std::unique_ptr<ShardedParameters> make_replicated(ShardingSetup setup, Stream& stream) {
  return std::make_unique<WholeGradients>(std::move(setup), /*shards=*/1, /*shard=*/0,
                                          /*scatter=*/false, stream);
}

std::unique_ptr<ShardedParameters> make_zero1(ShardingSetup setup, Stream& stream) {
  const int ranks = setup.groups.data->size();
  const int rank = setup.groups.data->rank();
  return std::make_unique<WholeGradients>(std::move(setup), ranks, rank, /*scatter=*/true, stream);
}

}  // namespace piton
