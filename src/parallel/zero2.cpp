// ZeRO stage 2: every rank holds all values, and its parts of the gradients. The gradients of each
// micro-batch are reduce-scattered and added to these parts.
#include "parallel/scattered_gradients.h"
#include "parallel/zero_stages.h"

namespace piton {
namespace {

class GradientShards final : public ResidentValues {
 public:
  GradientShards(ShardingSetup setup, Stream& stream)
      : ResidentValues(std::move(setup), /*sharded=*/true, stream),
        gradients_(units_, setup_.groups, {setup_.kernels, setup_.device, setup_.arena, stream}) {}

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
  }
  void finish_gradients(Stream& stream) override {
    values_.await_all(stream);  // also of parameters that nothing has used: updates follow
    gradients_.finish(stream);
  }

 private:
  ScatteredGradients gradients_;
};

}  // namespace

std::unique_ptr<ShardedParameters> make_zero2(ShardingSetup setup, Stream& stream) {
  return std::make_unique<GradientShards>(std::move(setup), stream);
}

}  // namespace piton
