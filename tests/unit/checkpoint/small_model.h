// A model of one or two blocks on one rank of any layout, its optimizer state, and the expected
// value of every element. Computed from the pieces only, independent of the code under test.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/hash.h"
#include "checkpoint/store.h"
#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "support/tensors.h"
#include "support/thread_world.h"

namespace piton::test {

// Sizes that tell mistakes apart: a vocabulary that divides by nothing, key heads fewer than
// queries.
inline constexpr std::int64_t kHidden = 24;
inline constexpr std::int64_t kKeys = 12;
inline constexpr std::int64_t kFfn = 20;
inline constexpr std::int64_t kVocabulary = 257;
inline constexpr std::int64_t kBlock = 40;  // of the norm: cuts spans inside rows

struct TestLayout {
  int tensor = 1;
  int pipeline = 1;
  int data = 1;
  bool shards = false;  // optimizer state over the data ranks

  int ranks() const { return tensor * pipeline * data; }
  MeshSizes sizes() const {
    MeshSizes sizes;
    sizes[Axis::kTensor] = tensor;
    sizes[Axis::kPipeline] = pipeline;
    sizes[Axis::kData] = data;
    return sizes;
  }
};

struct ModelVariant {
  DType dtype = DType::kF32;
  std::int64_t ffn = kFfn;
  bool biases = true;
  int blocks = 2;
};

// Parameters of the rank at the mesh's coordinates.
class SmallModel {
 public:
  SmallModel(const Mesh& mesh, const ModelVariant& variant) : variant_(variant) {
    const int t = mesh.size(Axis::kTensor);
    const int i = mesh.coordinate(Axis::kTensor);
    const int stages = mesh.size(Axis::kPipeline);
    const int stage = mesh.coordinate(Axis::kPipeline);
    if (stage == 0 || stage == stages - 1) add_embedding(t, i, stages);
    for (int block = 0; block < variant.blocks; ++block) {
      if (block * stages / variant.blocks != stage) continue;
      const std::string name = "layers." + std::to_string(block) + ".";
      add_rows(name + "qkv.weight",
               {{name + "query.weight", kHidden},
                {name + "key.weight", kKeys},
                {name + "value.weight", kKeys}},
               kHidden, t, i);
      if (variant.biases) {
        add_rows(name + "qkv.bias",
                 {{name + "query.bias", kHidden},
                  {name + "key.bias", kKeys},
                  {name + "value.bias", kKeys}},
                 0, t, i);
      }
      add_columns(name + "dense.weight", kHidden, kHidden, t, i);
      add_rows(name + "norm.weight", {{name + "norm.weight", kHidden}}, 0, 1, 0);
      add_rows(name + "gate_up.weight",
               {{name + "gate.weight", variant.ffn}, {name + "up.weight", variant.ffn}}, kHidden, t,
               i);
      add_columns(name + "down.weight", kHidden, variant.ffn, t, i);
    }
  }

  ParameterList& list() { return list_; }

 private:
  void add_embedding(int t, int i, int stages) {
    // Padded to a multiple of 8 t rows; the last ranks may hold little but padding.
    const std::int64_t rows = (kVocabulary + 8 * t - 1) / (8 * t) * 8;
    const std::int64_t first = std::min<std::int64_t>(i * rows, kVocabulary);
    const std::int64_t last = std::min<std::int64_t>((i + 1) * rows, kVocabulary);
    Parameter parameter;
    parameter.name = "embedding.weight";
    parameter.shape = {rows, kHidden};
    parameter.placement[Axis::kTensor] = {AxisPlacement::Kind::kSplit, 0, false};
    parameter.pieces = {
        piece("embedding.weight", {kVocabulary, kHidden}, {first, 0}, {last - first, kHidden}, 0)};
    if (stages > 1) parameter.tied_stages = {0, stages - 1};
    add(std::move(parameter));
  }

  // Canonical tensors one below the other, each split by rows; `columns` 0: one dim.
  void add_rows(const std::string& name,
                const std::vector<std::pair<std::string, std::int64_t>>& parts,
                std::int64_t columns, int t, int i) {
    Parameter parameter;
    parameter.name = name;
    if (t > 1) parameter.placement[Axis::kTensor] = {AxisPlacement::Kind::kSplit, 0, false};
    std::int64_t local_row = 0;
    const auto shape = [&](std::int64_t rows) {
      return columns == 0 ? Shape{rows} : Shape{rows, columns};
    };
    for (const auto& [part, rows] : parts) {
      const std::int64_t own = rows / t;
      const Shape start = columns == 0 ? Shape{own * i} : Shape{own * i, 0};
      parameter.pieces.push_back(piece(part, shape(rows), start, shape(own), local_row));
      local_row += own;
    }
    parameter.shape = shape(local_row);
    add(std::move(parameter));
  }

  void add_columns(const std::string& name, std::int64_t rows, std::int64_t columns, int t, int i) {
    Parameter parameter;
    parameter.name = name;
    if (t > 1) parameter.placement[Axis::kTensor] = {AxisPlacement::Kind::kSplit, 1, false};
    parameter.shape = {rows, columns / t};
    parameter.pieces = {piece(name, {rows, columns}, {0, columns / t * i}, {rows, columns / t}, 0)};
    add(std::move(parameter));
  }

  static Piece piece(const std::string& name, Shape global, Shape start, Shape extent,
                     std::int64_t row) {
    Piece piece;
    piece.name = name;
    piece.global = global;
    piece.start = start;
    piece.extent = extent;
    piece.local_row = row;
    piece.decays = global.ndim() == 2;
    return piece;
  }

  void add(Parameter parameter) {
    parameter.dtype = variant_.dtype;
    parameter.contributions = 1;
    list_.add(std::move(parameter));
  }

  ModelVariant variant_;
  ParameterList list_;
};

// The number at `index` of a canonical tensor; exact in bf16, different for every
// `salt`.
inline double element(const std::string& name, std::int64_t index, int salt) {
  std::uint64_t bits =
      hash64(name, static_cast<std::uint64_t>(salt)) + static_cast<std::uint64_t>(index);
  bits = (bits ^ (bits >> 29)) * 0xBF58476D1CE4E5B9ULL;
  return (static_cast<double>((bits >> 33) % 255) - 127) / 32;
}

// visit(local element, canonical name, canonical index) for every element that pieces cover.
inline void for_each_element(
    const Parameter& parameter,
    const std::function<void(std::int64_t, const std::string&, std::int64_t)>& visit) {
  const std::int64_t columns = parameter.shape.ndim() == 2 ? parameter.shape[1] : 1;
  for (const Piece& piece : parameter.pieces) {
    const bool matrix = piece.global.ndim() == 2;
    for (std::int64_t r = 0; r < piece.extent[0]; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        const std::int64_t row = piece.start[0] + r;
        const std::int64_t index = matrix ? row * piece.global[1] + piece.start[1] + c : row;
        visit((piece.local_row + r) * columns + c, piece.name, index);
      }
    }
  }
}

// One rank: model, optimizer, and all that they need. Values are resident.
struct SmallRun {
  SmallRun(World& world, const TestLayout& layout, const ModelVariant& variant = {})
      : mesh(world, layout.sizes()), model(mesh, variant) {
    std::vector<UpdateSpan> spans;
    for (Parameter* parameter : model.list().all()) {
      parameter->value = host_tensor(parameter->dtype, parameter->shape);
      const std::int64_t blocks = (parameter->elements() + kBlock - 1) / kBlock;
      const int d = layout.shards ? layout.data : 1;
      const int own = layout.shards ? mesh.coordinate(Axis::kData) : 0;
      const std::int64_t begin = blocks * own / d * kBlock;
      const std::int64_t end = std::min(blocks * (own + 1) / d * kBlock, parameter->elements());
      if (begin >= end) continue;
      spans.push_back({parameter, begin, host_tensor(DType::kF32, {end - begin}),
                       parameter->value.flatten().slice(0, begin, end - begin)});
    }
    optimizer = std::make_unique<Optimizer>(OptimizerOptions(), spans, mesh,
                                            ComputeContext{*kernels, device, arena, *stream},
                                            OptimizerSetup{.norm_block = kBlock});
    optimizer->reset_main(*stream);
  }

  StoreContext context() { return {mesh, device, arena, *stream}; }
  StoredModel stored(bool with_optimizer = true) {
    return {model.list().all(), nullptr, with_optimizer ? optimizer.get() : nullptr};
  }

  // Values from `salt`, main copies, first and second moments from the salts behind it.
  void fill(int salt) {
    for (Parameter* parameter : model.list().all()) {
      for_each_element(*parameter,
                       [&](std::int64_t local, const std::string& name, std::int64_t index) {
                         set_value(parameter->value, local, element(name, index, salt));
                       });
    }
    for (const OptimizerState& state : optimizer->state()) {
      for_each_element(
          *state.parameter, [&](std::int64_t local, const std::string& name, std::int64_t index) {
            if (local < state.offset || local >= state.offset + state.size()) return;
            if (!state.main_is_value)
              set_value(state.main, local - state.offset, element(name, index, salt + 1));
            int number = 2;
            for (const Moment& moment : state.moments) {
              set_value(moment.values, local - state.offset, element(name, index, salt + number++));
            }
          });
    }
    optimizer->set_progress(progress_of(salt));
  }

  static OptimizerProgress progress_of(int salt) {
    return {.steps = salt, .skipped = salt / 2, .good_updates = 3, .hysteresis_left = -salt};
  }

  // How many elements are not what fill(salt) made them; padding must be 0.
  std::int64_t differences(int salt, bool with_optimizer = true) {
    std::int64_t count = 0;
    for (Parameter* parameter : model.list().all()) {
      std::vector<double> expected(static_cast<std::size_t>(parameter->elements()), 0);
      for_each_element(*parameter,
                       [&](std::int64_t local, const std::string& name, std::int64_t index) {
                         expected[static_cast<std::size_t>(local)] = element(name, index, salt);
                       });
      for (std::int64_t i = 0; i < parameter->elements(); ++i) {
        count += value_at(parameter->value, i) != expected[static_cast<std::size_t>(i)];
      }
    }
    if (!with_optimizer) return count;
    for (const OptimizerState& state : optimizer->state()) {
      for_each_element(
          *state.parameter, [&](std::int64_t local, const std::string& name, std::int64_t index) {
            if (local < state.offset || local >= state.offset + state.size()) return;
            const std::int64_t i = local - state.offset;
            if (!state.main_is_value)
              count += value_at(state.main, i) != element(name, index, salt + 1);
            int number = 2;
            for (const Moment& moment : state.moments) {
              count += value_at(moment.values, i) != element(name, index, salt + number++);
            }
          });
    }
    count += optimizer->progress() != progress_of(salt);
    return count;
  }

  HostDevice device;
  Arena arena{device};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<Kernels> kernels = make_reference_kernels();
  Mesh mesh;
  SmallModel model;
  std::unique_ptr<Optimizer> optimizer;
};

inline TrainState state_of(std::int64_t iteration) {
  TrainState state;
  state.iteration = iteration;
  state.consumed_samples = 8 * iteration;
  state.consumed_tokens = 8192 * iteration;
  state.seed = 0xFFFFFFFFFFFFFFFEULL;
  state.learning_rate = 1.0 / 3;
  state.lm_loss = 2.5;
  state.facts = {{"data", "a.bin 17 \"x\""}};
  return state;
}

}  // namespace piton::test
