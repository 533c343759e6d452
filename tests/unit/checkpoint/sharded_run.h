// A run of three parameters with real shards: trained, saved and loaded under every ZeRO stage.
#pragma once

#include <memory>
#include <string>

#include "unit/checkpoint/small_model.h"

namespace piton::test {

// One rank of a run under ShardedParameters. The norm's blocks are the real ones, so parameters
// here have several of them.
struct ShardedRun {
  ShardedRun(World& world, const TestLayout& layout, int zero_stage, DType dtype,
             const OptimizerOptions& options = {})
      : mesh(world, layout.sizes()) {
    const int t = layout.tensor;
    const int i = mesh.coordinate(Axis::kTensor);
    Parameter down;  // split by columns: [96, 600/t]
    down.name = "down.weight";
    down.shape = {96, 600 / t};
    down.placement[Axis::kTensor] = {AxisPlacement::Kind::kSplit, 1, false};
    down.pieces = {piece("down.weight", {96, 600}, {0, 600 / t * i}, {96, 600 / t}, true)};
    Parameter norm;
    norm.name = "norm.weight";
    norm.shape = {96};
    norm.pieces = {piece("norm.weight", {96}, {0}, {96}, false)};
    Parameter frozen;
    frozen.name = "frozen.weight";
    frozen.shape = {40, 1000};
    frozen.pieces = {piece("frozen.weight", {40, 1000}, {0, 0}, {40, 1000}, true)};
    frozen.trainable = false;
    for (Parameter* parameter : {&down, &norm, &frozen}) {
      parameter->dtype = dtype;
      parameter->contributions = parameter->trainable ? 1 : 0;
      parameter->placement[Axis::kData].gradient_is_partial = true;
      list.add(*parameter);
    }
    sharded =
        ShardedParameters::make(zero_stage, list.all(), mesh, {*kernels, device, arena, *stream});
    set_values(1);
    optimizer = std::make_unique<Optimizer>(options, update_spans(sharded->owned()), mesh,
                                            ComputeContext{*kernels, device, arena, *stream});
    optimizer->reset_main(*stream);
  }

  static Piece piece(const std::string& name, Shape global, Shape start, Shape extent,
                     bool decays) {
    Piece piece;
    piece.name = name;
    piece.global = global;
    piece.start = start;
    piece.extent = extent;
    piece.decays = decays;
    return piece;
  }

  void set_values(int salt) {
    for (Parameter* parameter : list.all()) {
      const Tensor rows = host_tensor(parameter->dtype, parameter->shape);
      for_each_element(*parameter,
                       [&](std::int64_t local, const std::string& name, std::int64_t index) {
                         set_value(rows, local, element(name, index, salt));
                       });
      sharded->set_value(*parameter, rows, *stream);
    }
    sharded->publish_values(*stream);
  }

  // Gradients that depend on the step and on the value, so that an error keeps growing.
  void step(int number) {
    sharded->begin_step(1, *stream);
    for (Parameter* parameter : list.all()) {
      if (!parameter->trainable) continue;
      const Tensor value = sharded->whole_value(*parameter, *stream);
      const Tensor gradient = sharded->gradient(*parameter, *stream);
      for_each_element(
          *parameter, [&](std::int64_t local, const std::string& name, std::int64_t index) {
            // Rank 0 alone has data: the sum over ranks is exact.
            const double g = element(name, index, 100 + number) + value_at(value, local);
            set_value(gradient, local, mesh.coordinate(Axis::kData) == 0 ? g : 0);
          });
      sharded->contribute(*parameter, *stream);
    }
    sharded->finish_gradients(*stream);
    optimizer->step({0.01 / number, 0.01}, *stream);
    sharded->publish_values(*stream);
    optimizer->result(*stream);
  }

  StoredModel stored() { return {list.all(), sharded.get(), optimizer.get()}; }
  StoreContext context() { return {mesh, device, arena, *stream}; }

  HostDevice device;
  Arena arena{device};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<Kernels> kernels = make_reference_kernels();
  Mesh mesh;
  ParameterList list;
  std::unique_ptr<ShardedParameters> sharded;
  std::unique_ptr<Optimizer> optimizer;
};

}  // namespace piton::test
