// The small model (support/small_model.h) trained under a layout: chunks, sharded parameters, pipeline,
// and a plain update. One object is one rank.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "parallel/data_parallel.h"
#include "parallel/pipeline.h"
#include "support/small_model.h"

namespace piton::test {

struct SmallLayout {
  Schedule schedule;    // stages: size of the pipeline axis; micro-batches a data rank
  int data = 1;
  int zero_stage = 0;
  SmallModelSizes sizes = {};
};

class SmallTraining {
 public:
  SmallTraining(World& world, Device& device, SmallLayout layout)
      : layout_(std::move(layout)),
        arena(device, 1 << 20),
        stream(device.make_stream()),
        kernels(make_reference_kernels()),
        mesh(world, mesh_sizes(layout_)),
        device_(device) {
    const Schedule& schedule = layout_.schedule;
    std::vector<Chunk*> list;
    for (const int chunk : schedule.chunks_of_stage(stage())) {
      chunks_.push_back(std::make_unique<SmallChunk>(
          layout_.sizes, chunk, schedule.chunks(), mesh.group(Axis::kTensor),
          std::pair{schedule.stage_of_chunk.front(), schedule.stage_of_chunk.back()}));
      list.push_back(chunks_.back().get());
      for (Parameter* parameter : chunks_.back()->parameters().all()) parameters.push_back(parameter);
    }
    weights = ShardedParameters::make(layout_.zero_stage, parameters, mesh, *kernels, device, arena, *stream);
    for (Parameter* parameter : parameters) {
      weights->set_value(*parameter, SmallChunk::initial_rows(*parameter), *stream);
    }
    weights->publish_values(*stream);
    pipeline = std::make_unique<Pipeline>(schedule, list, mesh.group(Axis::kPipeline));
  }

  int stage() const { return mesh.coordinate(Axis::kPipeline); }
  bool on_last_stage() const { return layout_.schedule.stage_of_chunk.back() == stage(); }

  // This rank's micro-batches of the global batch number `step`: data rank r has every data-th.
  std::vector<ModelInput> inputs(int step) const {
    std::vector<ModelInput> inputs;
    const int per_rank = layout_.schedule.micro_batches;
    for (int m = 0; m < per_rank; ++m) {
      const int index = (step * per_rank + m) * layout_.data + mesh.coordinate(Axis::kData);
      inputs.push_back(small_input(layout_.sizes, index));
    }
    return inputs;
  }

  Context context() {
    return {.kernels = *kernels, .stream = *stream, .device = device_, .arena = arena, .weights = *weights};
  }

  // Gradients of one batch; the sum of this rank's losses (0 but on the last stage).
  double backward(int step) {
    weights->begin_step(layout_.schedule.micro_batches, *stream);
    const PipelineResult result = pipeline->train(context(), inputs(step));
    weights->finish_gradients(*stream);
    return result.loss_sum.data<double>()[0];
  }

  double evaluate(int step) { return pipeline->evaluate(context(), inputs(step)).loss_sum.data<double>()[0]; }

  // value -= rate * gradient, on the owned spans, in fp32.
  void update(float rate) {
    for (const OwnedSpan& owned : weights->owned()) {
      for (std::int64_t i = 0; i < owned.span.size; ++i) {
        owned.value.data<float>()[i] -= rate * owned.gradient.data<float>()[i];
      }
    }
    weights->publish_values(*stream);
  }

  // All values of this stage, whole; collective over the data group.
  std::map<std::string, std::vector<float>> values() {
    std::map<std::string, std::vector<float>> values;
    for (Parameter* parameter : parameters) {
      const Tensor whole = weights->whole_value(*parameter, *stream);
      values[parameter->name] = {whole.data<float>(), whole.data<float>() + whole.elements()};
    }
    return values;
  }

  std::int64_t in_use_bytes(MemoryKind kind) const {
    return arena.counts().in_use_bytes[static_cast<std::size_t>(kind)];
  }

 private:
  static MeshSizes mesh_sizes(const SmallLayout& layout) {
    MeshSizes sizes;
    sizes[Axis::kData] = layout.data;
    sizes[Axis::kPipeline] = layout.schedule.stages;
    return sizes;
  }

  SmallLayout layout_;

 public:
  Arena arena;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Kernels> kernels;
  Mesh mesh;
  std::vector<Parameter*> parameters;

 private:
  Device& device_;
  std::vector<std::unique_ptr<SmallChunk>> chunks_;

 public:
  std::unique_ptr<ShardedParameters> weights;
  std::unique_ptr<Pipeline> pipeline;
};

}  // namespace piton::test
