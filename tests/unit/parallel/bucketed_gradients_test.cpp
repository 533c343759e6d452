// Sums of gradients, and weights that ZeRO-3 gathers, are hidden under the work of the layers:
// measured on two ranks that do not exist, whose link carries 2 GB/s. Nothing writes to the large
// tensors, so they take no memory, and a layer is a pause that is a little longer than its
// transfers.
#include "parallel/bucketed_gradients.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "comm/virtual/world.h"
#include "device/host_device.h"
#include "kernels/meta/kernels.h"
#include "parallel/data_parallel.h"

namespace piton {
namespace {

constexpr int kLayers = 24;
constexpr std::int64_t kRows = 4096;  // of a weight of a bucket, 32 MiB

class OnSlowLinks {
 public:
  explicit OnSlowLinks(int zero_stage)
      : clock({.within_hosts = {.latency_seconds = 2e-6, .bytes_per_second = 2e9},
               .between_hosts = {.latency_seconds = 2e-6, .bytes_per_second = 2e9},
               .ranks_of_host = 1}),
        world_(make_virtual_world(0, 2, &clock)),
        kernels_(std::make_unique<MetaKernels>()),
        arena_(device_),
        stream(device_.make_stream()),
        mesh_(*world_, sizes()) {
    for (int layer = 0; layer < kLayers; ++layer) {
      auto parameter = std::make_unique<Parameter>();
      parameter->name = "layer" + std::to_string(layer);
      parameter->shape = {kRows, kBucketBytes / 4 / kRows};
      parameter->contributions = 1;
      parameter->placement[Axis::kData].gradient_is_partial = true;
      layers.push_back(parameter.get());
      owned_.push_back(std::move(parameter));
    }
    weights =
        ShardedParameters::make(zero_stage, layers, mesh_, {*kernels_, device_, arena_, *stream});
  }

  // The share of the time of transfers that is hidden since the last call.
  double hidden() {
    const LinkTimes times = clock.times();
    const double waited = times.waited_seconds - before_.waited_seconds;
    const double transfers = times.transfers_seconds - before_.transfers_seconds;
    before_ = times;
    return 1 - waited / transfers;
  }

  LinkClock clock;

 private:
  static MeshSizes sizes() {
    MeshSizes sizes;
    sizes[Axis::kData] = 2;
    return sizes;
  }
  HostDevice device_;
  std::unique_ptr<World> world_;
  std::unique_ptr<Kernels> kernels_;
  Arena arena_;
  std::vector<std::unique_ptr<Parameter>> owned_;
  LinkTimes before_;

 public:
  std::unique_ptr<Stream> stream;

 private:
  Mesh mesh_;

 public:
  std::vector<Parameter*> layers;
  std::unique_ptr<ShardedParameters> weights;
};

void work_of_a_layer() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

TEST(BucketedGradients, AreSummedUnderTheBackwardOfOtherLayers) {
  OnSlowLinks run(0);
  run.weights->begin_step(1, *run.stream);
  for (auto layer = run.layers.rbegin(); layer != run.layers.rend(); ++layer) {
    work_of_a_layer();
    static_cast<void>(run.weights->gradient_buffer(**layer, *run.stream));
    run.weights->contribute(**layer, *run.stream);
  }
  run.weights->finish_gradients(*run.stream);
  // Each sends its 32 MiB once; only the sum of the first layer is waited for.
  EXPECT_NEAR(run.clock.times().transfers_seconds, kLayers * kBucketBytes / 2e9, 1e-3);
  EXPECT_GE(run.hidden(), 0.9);
}

TEST(WholeValues, AreGatheredUnderTheForwardPassOfLayersBefore) {
  OnSlowLinks run(1);
  run.weights->publish_values(*run.stream);
  for (Parameter* layer : run.layers) {
    const WeightUse use = run.weights->acquire(*layer, WeightForm::kRows, *run.stream);
    work_of_a_layer();
  }
  EXPECT_NEAR(run.clock.times().transfers_seconds, kLayers * kBucketBytes / 2 / 2e9, 1e-3);
  EXPECT_GE(run.hidden(), 0.9);
}

TEST(GatheredWeights, AreGatheredUnderTheWorkOfLayersBefore) {
  OnSlowLinks run(3);
  for (int step = 0; step < 2; ++step) {
    run.weights->begin_step(1, *run.stream);
    for (Parameter* layer : run.layers) {
      const WeightUse use = run.weights->acquire(*layer, WeightForm::kRows, *run.stream);
      work_of_a_layer();
    }
    const double hidden = run.hidden();
    if (step == 0) {
      EXPECT_LT(hidden, 0.1);  // the first step only records the order
    } else {
      EXPECT_GE(hidden, 0.9);
    }
    // Contributions end the step.
    for (auto layer = run.layers.rbegin(); layer != run.layers.rend(); ++layer) {
      static_cast<void>(run.weights->gradient_buffer(**layer, *run.stream));
      run.weights->contribute(**layer, *run.stream);
    }
    run.weights->finish_gradients(*run.stream);
    static_cast<void>(run.hidden());
    run.weights->publish_values(*run.stream);
  }
}

}  // namespace
}  // namespace piton
