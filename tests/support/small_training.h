// Trains the small model (support/small_model.h) under a layout: chunks, sharded parameters,
// pipeline, and plain gradient descent. One object is one rank. Runs on the host or on a
// DelayedDevice.
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
#include "support/delayed_kernels.h"
#include "support/small_model.h"

namespace piton::test {

struct SmallLayout {
  Schedule schedule;  // stages: size of the pipeline axis; micro-batches per data rank
  int data = 1;
  int zero_stage = 0;
  SmallModelSizes sizes = {};
};

class SmallTraining {
 public:
  SmallTraining(World& world, Device& device, SmallLayout layout)
      : layout_(std::move(layout)),
        arena(device, 1 << 20),
        reference_(make_reference_kernels()),
        delayed_(*reference_, device),
        kernels(device.place().kind == DeviceKind::kDelayed ? static_cast<Kernels&>(delayed_)
                                                            : *reference_),
        stream(device.make_stream()),
        mesh(world, mesh_sizes(layout_)),
        device_(device) {
    const Schedule& schedule = layout_.schedule;
    std::vector<Chunk*> list;
    for (const int chunk : schedule.chunks_of_stage(stage())) {
      list_of_stage_.begin_chunk(chunk);
      chunks_.push_back(std::make_unique<SmallChunk>(layout_.sizes,
                                                     ChunkPlace{chunk, schedule.stage_of_chunk},
                                                     list_of_stage_, mesh.group(Axis::kTensor)));
      list.push_back(chunks_.back().get());
    }
    parameters = list_of_stage_.all();
    weights = ShardedParameters::make(layout_.zero_stage, parameters, mesh,
                                      {kernels, device, arena, *stream});
    for (Parameter* parameter : parameters) {
      weights->set_value(*parameter, on_device(SmallChunk::initial_rows(*parameter)), *stream);
    }
    weights->publish_values(*stream);
    pipeline = std::make_unique<Pipeline>(schedule, list, mesh.group(Axis::kPipeline));
  }

  int stage() const { return mesh.coordinate(Axis::kPipeline); }
  bool on_last_stage() const { return layout_.schedule.stage_of_chunk.back() == stage(); }

  // This rank's micro-batches of global batch `step`: data rank r of D has numbers r, r + D, r + 2
  // D, ...
  std::vector<ModelInput> inputs(int step) {
    std::vector<ModelInput> inputs;
    const int per_rank = layout_.schedule.micro_batches;
    for (int m = 0; m < per_rank; ++m) {
      const int index = (step * per_rank + m) * layout_.data + mesh.coordinate(Axis::kData);
      ModelInput input = small_input(layout_.sizes, index);
      for (Tensor* tensor : {&input.tokens, &input.positions, &input.loss.labels, &input.loss.mask,
                             &input.loss.scale}) {
        *tensor = on_device(*tensor);
      }
      inputs.push_back(std::move(input));
    }
    return inputs;
  }

  Context context() {
    return {.kernels = kernels,
            .stream = *stream,
            .device = device_,
            .arena = arena,
            .weights = *weights};
  }

  // Computes the gradients of one batch. Returns the sum of this rank's losses (0 except on the
  // last stage).
  double backward(int step) {
    weights->begin_step(layout_.schedule.micro_batches, *stream);
    const PipelineResult result = pipeline->train(context(), inputs(step));
    weights->finish_gradients(*stream);
    return loss_of(result);
  }

  double evaluate(int step) { return loss_of(pipeline->forward(context(), inputs(step))); }

  // value -= rate * gradient, on the owned spans, in fp32.
  void update(float rate) {
    for (const OwnedSpan& owned : weights->owned()) {
      std::vector<float> value = numbers(owned.value);
      const std::vector<float> gradient = numbers(owned.gradient);
      for (std::size_t i = 0; i < value.size(); ++i) value[i] -= rate * gradient[i];
      device_.upload(value.data(), owned.value, *stream);
    }
    weights->publish_values(*stream);
  }

  // The unsharded values of all parameters of this stage. Collective over the data group.
  std::map<std::string, std::vector<float>> values() {
    std::map<std::string, std::vector<float>> values;
    for (Parameter* parameter : parameters) {
      values[parameter->name] = numbers(weights->whole_value(*parameter, *stream));
    }
    return values;
  }

  std::vector<float> numbers(const Tensor& tensor) {
    std::vector<float> numbers(tensor.elements());
    device_.download(tensor, numbers.data(), *stream);
    return numbers;
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

  double loss_of(const PipelineResult& result) {
    double number = 0;
    const auto sum = result.sums.find(kLossSum);
    if (sum != result.sums.end()) device_.download(sum->second, &number, *stream);
    return number;
  }

  Tensor on_device(const Tensor& host) {
    if (device_.place() == host.place()) return host;
    Tensor tensor = arena.allocate(host.dtype(), host.shape(), MemoryKind::kWorkspace);
    device_.upload(host.raw(), tensor, *stream);
    return tensor;
  }

  SmallLayout layout_;

 public:
  Arena arena;

 private:
  std::unique_ptr<Kernels> reference_;
  DelayedKernels delayed_;

 public:
  Kernels& kernels;
  std::unique_ptr<Stream> stream;
  Mesh mesh;
  std::vector<Parameter*> parameters;

 private:
  Device& device_;
  ParameterList list_of_stage_;
  std::vector<std::unique_ptr<SmallChunk>> chunks_;

 public:
  std::unique_ptr<ShardedParameters> weights;
  std::unique_ptr<Pipeline> pipeline;
};

}  // namespace piton::test
