// ZeRO stages 0 and 1: every rank holds all values and gradients. In stage 0 gradients are
// all-reduced, and every rank updates everything. In stage 1 gradients are reduce-scattered; each
// rank updates its own parts, and the new values are gathered.
#include "parallel/bucketed_gradients.h"
#include "parallel/zero_stages.h"

namespace piton {
namespace {

class WholeGradients final : public ResidentValues {
 public:
  WholeGradients(ShardingSetup setup, bool sharded, Stream& stream)
      : ResidentValues(std::move(setup), sharded, stream),
        gradients_(units_, setup_.groups, setup_.device, setup_.arena, stream) {}

  Tensor gradient(Parameter& parameter, Stream& stream) override {
    return parameter.trainable ? gradients_.gradient(parameter, stream) : Tensor();
  }
  GradientBuffer gradient_buffer(Parameter& parameter, Stream& /*stream*/) override {
    return parameter.trainable ? gradients_.buffer(parameter) : GradientBuffer();
  }
  void contribute(Parameter& parameter, Stream& stream) override {
    gradients_.contribute(parameter, stream);
  }

  std::vector<OwnedSpan> owned() override { return owned_parts(units_, gradients_, values_); }

  void begin_step(int micro_batches, Stream& stream) override {
    setup_.arena.settle(stream);
    gradients_.begin_step(micro_batches, stream);
  }
  void finish_gradients(Stream& stream) override {
    values_.await_all(stream);  // also of parameters that nothing has used: updates follow
    gradients_.finish(stream);
  }

 private:
  BucketedGradients gradients_;
};

}  // namespace

std::unique_ptr<ShardedParameters> make_replicated(ShardingSetup setup, Stream& stream) {
  return std::make_unique<WholeGradients>(std::move(setup), /*sharded=*/false, stream);
}

std::unique_ptr<ShardedParameters> make_zero1(ShardingSetup setup, Stream& stream) {
  return std::make_unique<WholeGradients>(std::move(setup), /*sharded=*/true, stream);
}

}  // namespace piton
