#include "parallel/parallel_options.h"

#include "base/error.h"
#include "base/option_range.h"

namespace piton {
namespace {

void expect_positive(const char* flag, int value) {
  if (value >= 1) return;
  throw Error(Fault::kUsage, "parallel: --{} is {}, wanted at least 1", flag, value);
}

MeshSizes mesh_of(int world_size, int tensor, int pipeline) {
  expect_positive("tensor-model-parallel-size", tensor);
  expect_positive("pipeline-model-parallel-size", pipeline);
  const std::int64_t replica = std::int64_t{tensor} * pipeline;
  if (world_size % replica != 0) {
    throw Error(
        Fault::kUsage,
        "mesh: {} {} cannot form tensor {} x pipeline {}; start a multiple of {} (tools/launch.sh "
        "{} "
        "piton ...), or change --tensor-model-parallel-size or --pipeline-model-parallel-size",
        world_size, world_size == 1 ? "process" : "processes", tensor, pipeline, replica, replica);
  }
  MeshSizes sizes;
  sizes[Axis::kTensor] = tensor;
  sizes[Axis::kPipeline] = pipeline;
  sizes[Axis::kData] = static_cast<int>(world_size / replica);
  return sizes;
}

}  // namespace

RecomputeRules ParallelOptions::recompute_rules(std::int64_t layers) const {
  const bool full = recompute == RecomputeGranularity::kFull;
  if (!full && (recompute_method || recompute_layers)) {
    throw Error(Fault::kUsage,
                "parallel: --recompute-{}: needs --recompute-granularity full, which runs layers "
                "again",
                recompute_method ? "method" : "num-layers");
  }
  if (recompute_layers) {
    check_range("parallel: --recompute-num-layers (of a stage)", *recompute_layers, 1, layers);
  }
  return {.granularity = recompute,
          .block = recompute_method == "block",
          .layers = recompute_layers.value_or(1)};
}

MeshSizes ParallelOptions::check(int world_size) const {
  expect_positive("num-slices", linears.slices);
  if (zero_stage < 0 || zero_stage > 3) {
    throw Error(Fault::kUsage, "parallel: --zero-stage is {}, wanted 0, 1, 2 or 3", zero_stage);
  }
  return mesh_of(world_size, tensor, pipeline);
}

MeshSizes InferenceOptions::check(int world_size) const {
  if (zero_stage != 0 && zero_stage != 3) {
    throw Error(Fault::kUsage,
                "parallel: --zero-stage is {}, wanted 0 or 3: a model that only reads has no "
                "gradients and no optimizer state to share",
                zero_stage);
  }
  const MeshSizes sizes = mesh_of(world_size, tensor, pipeline);
  if (sizes[Axis::kData] > 1 && zero_stage == 0) {
    throw Error(Fault::kUsage,
                "mesh: {} processes, and tensor {} x pipeline {} has work for {}; start {}, change "
                "--tensor-model-parallel-size or --pipeline-model-parallel-size, or share the "
                "weights with --zero-stage 3",
                world_size, tensor, pipeline, tensor * pipeline, tensor * pipeline);
  }
  return sizes;
}

}  // namespace piton
