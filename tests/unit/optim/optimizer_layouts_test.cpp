// Updates that need more than the elements of a span (whole matrices, whole rows): the same bits of
// values and state, however the parameters are cut.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "optim/matrix_rounds.h"
#include "optim/optimizer.h"
#include "parallel/data_parallel.h"
#include "support/tensors.h"
#include "support/thread_world.h"

namespace piton {
namespace {

struct Layout {
  int tensor = 1;
  int data = 1;
  int zero = 0;
};

// A tensor of the model without any split. `split`: the dim over tensor ranks, or -1.
struct Global {
  std::string name;
  Shape shape;
  int split = -1;
  bool is_table = false;
};

Piece piece_of(const Global& global, int rank, int ranks, std::int64_t local_row) {
  Piece piece{.name = global.name, .global = global.shape, .extent = global.shape};
  for (int dim = 0; dim < global.shape.ndim(); ++dim) piece.start.append(0);
  if (global.split >= 0) {
    piece.extent[global.split] /= ranks;
    piece.start[global.split] = rank * piece.extent[global.split];
  }
  piece.local_row = local_row;
  piece.decays = global.shape.ndim() > 1;
  return piece;
}

// One parameter of the tensors, stacked by rows.
Parameter stacked(const std::vector<Global>& globals, int rank, int ranks, std::int64_t padding) {
  Parameter parameter;
  parameter.name = globals[0].name + " and so on";
  parameter.dtype = DType::kBF16;
  parameter.contributions = 1;
  parameter.is_table = globals[0].is_table;
  std::int64_t rows = 0;
  for (const Global& global : globals) {
    parameter.pieces.push_back(piece_of(global, rank, ranks, rows));
    rows += parameter.pieces.back().extent[0];
  }
  parameter.shape = parameter.pieces[0].extent;
  parameter.shape[0] = rows + padding;
  parameter.placement[Axis::kData].gradient_is_partial = true;
  const int split = globals[0].split;
  if (split >= 0) parameter.placement[Axis::kTensor] = {AxisPlacement::Kind::kSplit, split, false};
  return parameter;
}

// Sizes that no number of ranks divides: parts of 16 elements at least, so small ones are not on
// all ranks, and rows are cut in the middle.
std::vector<Parameter> parameters(int rank, int ranks) {
  std::vector<Parameter> all;
  const auto add = [&](const std::vector<Global>& globals, std::int64_t padding = 0) {
    all.push_back(stacked(globals, rank, ranks, padding));
  };
  add({{"table", {30, 10}, -1, true}}, 2);
  add({{"q", {12, 14}, 0}, {"k", {4, 14}, 0}, {"v", {4, 14}, 0}});
  add({{"wide", {6, 22}, 1}});
  add({{"tall", {22, 6}, 0}});
  add({{"again", {22, 6}, 0}});
  add({{"tiny", {4, 2}, 0}});
  add({{"small", {6, 6}}});
  add({{"bias", {44}, 0}});
  add({{"gain", {37}}});
  return all;
}

float number(const std::string& name, std::int64_t index, int salt) {
  const auto hash = static_cast<double>(
      std::hash<std::string>()(fmt::format("{} {} {}", name, index, salt)) % 100003);
  return static_cast<float>(std::sin(hash) * std::exp(std::cos(3 * hash)));
}

// Calls visit(canonical name, index in it, element of the local tensor).
template <typename Visit>
void for_elements(const Parameter& parameter, Visit&& visit) {
  const std::int64_t columns = parameter.elements() / parameter.shape[0];
  for (const Piece& piece : parameter.pieces) {
    const std::int64_t whole = piece.global.ndim() > 1 ? piece.global[1] : 1;
    const std::int64_t first_column = piece.start.ndim() > 1 ? piece.start[1] : 0;
    for (std::int64_t i = 0; i < piece.extent.elements(); ++i) {
      visit(piece.name, (piece.start[0] + i / columns) * whole + first_column + i % columns,
            piece.local_row * columns + i);
    }
  }
}

// Tensor of state or values, canonical name, element of it.
using Bits = std::map<std::tuple<std::string, std::string, std::int64_t>, double>;

void note_state(const OptimizerState& state, Bits& bits) {
  const auto note = [&](const std::string& what, const Tensor& tensor) {
    for_elements(*state.parameter,
                 [&](const std::string& name, std::int64_t index, std::int64_t local) {
                   if (local < state.offset || local >= state.offset + state.size()) return;
                   bits[{what, name, index}] = test::value_at(tensor, local - state.offset);
                 });
  };
  note("main", state.main);
  for (const Moment& moment : state.moments) {
    if (!moment.each_row) {
      note(std::string(moment.name), moment.values);
      continue;
    }
    for (const RowRun& run : row_runs(*state.parameter, state.offset, state.size())) {
      const bool rows = run.piece->global.ndim() > 1;
      for (std::int64_t row = 0; row < run.rows; ++row) {
        const std::int64_t index = rows ? run.piece->start[0] + run.first_row + row : 0;
        const double value = test::value_at(moment.values, run.place + row);
        const auto [place, is_new] =
            bits.try_emplace({std::string(moment.name), run.piece->name, index}, value);
        EXPECT_EQ(place->second, value) << "a row has one scale";
      }
    }
  }
}

// All values and state after three steps.
Bits trained(const OptimizerOptions& options, const Layout& layout) {
  Bits bits;
  std::mutex mutex;
  test::run_ranks(layout.tensor * layout.data, [&](World& world) {
    HostDevice device;
    Arena arena(device);
    const auto stream = device.make_stream();
    const auto kernels = make_reference_kernels();
    MeshSizes sizes;
    sizes[Axis::kTensor] = layout.tensor;
    sizes[Axis::kData] = layout.data;
    Mesh mesh(world, sizes);
    ParameterList list;
    for (Parameter& one : parameters(mesh.coordinate(Axis::kTensor), layout.tensor)) {
      list.add(std::move(one));
    }
    auto sharded = ShardedParameters::make(
        layout.zero, list.all(), mesh, {*kernels, device, arena, *stream},
        ShardingRules{.cut = options.kind == OptimizerKind::kMuon ? CutPolicy::kWholeMatrices
                                                                  : CutPolicy::kEven});
    for (Parameter* parameter : list.all()) {
      const Tensor rows = host_tensor(parameter->dtype, parameter->shape);
      for_elements(*parameter,
                   [&](const std::string& name, std::int64_t index, std::int64_t local) {
                     test::set_value(rows.flatten(), local, number(name, index, 0));
                   });
      sharded->set_value(*parameter, rows, *stream);
    }
    sharded->publish_values(*stream);
    Optimizer optimizer(options, update_spans(sharded->owned()), mesh,
                        {*kernels, device, arena, *stream});
    optimizer.reset_main(*stream);
    for (int step = 1; step <= 3; ++step) {
      sharded->begin_step(1, *stream);
      for (Parameter* parameter : list.all()) {
        const Tensor gradient = sharded->gradient(*parameter, *stream).flatten();
        // Whole on one data rank, nothing on the others: the sum over ranks is exact.
        if (mesh.coordinate(Axis::kData) == 0) {
          for_elements(*parameter,
                       [&](const std::string& name, std::int64_t index, std::int64_t local) {
                         test::set_value(gradient, local, number(name, index, step));
                       });
        }
        sharded->contribute(*parameter, *stream);
      }
      sharded->finish_gradients(*stream);
      optimizer.step({.learning_rate = 0.02, .weight_decay = 0.1}, *stream);
      EXPECT_FALSE(optimizer.result(*stream).skipped);
      sharded->publish_values(*stream);
    }
    for (Parameter* parameter : list.all()) {
      // New values may still be on their way.
      if (layout.zero != 3) static_cast<void>(sharded->whole_value(*parameter, *stream));
    }
    const std::lock_guard lock(mutex);
    for (const OptimizerState& state : optimizer.state()) note_state(state, bits);
    for (Parameter* parameter : list.all()) {
      if (layout.zero == 3) continue;
      for_elements(
          *parameter, [&](const std::string& name, std::int64_t index, std::int64_t local) {
            bits[{"value", name, index}] = test::value_at(parameter->value.flatten(), local);
          });
    }
  });
  return bits;
}

struct Rule {
  const char* name;
  OptimizerOptions options;
};

class UpdatesOfLayouts : public testing::TestWithParam<Rule> {};

TEST_P(UpdatesOfLayouts, HaveTheBitsOfOneProcess) {
  // The norm of the gradient may round differently, so it does not scale the gradient.
  OptimizerOptions options = GetParam().options;
  options.clip_grad = 0;
  options.average_decay = 0.9;
  const Bits alone = trained(options, {});
  for (const int tensor : {1, 2}) {
    for (const int data : {1, 2, 3, 4}) {
      for (const int zero : {0, 1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} tensor ranks, {} data ranks, ZeRO {}", tensor, data, zero));
        const Bits split = trained(options, {tensor, data, zero});
        int different = 0;
        for (const auto& [key, value] : split) {
          if (alone.at(key) != value) ++different;
        }
        EXPECT_EQ(different, 0);
        // Under ZeRO 3 values are checked by their main copies.
        EXPECT_EQ(split.size(),
                  alone.size() - (zero == 3 ? 30 * 10 + 20 * 14 + 3 * 132 + 8 + 36 + 44 + 37 : 0));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, UpdatesOfLayouts,
                         testing::Values(Rule{"AdamW", {}},
                                         Rule{"AdamWInBf16",
                                              {.first_moment = DType::kBF16,
                                               .second_moment = DType::kBF16}},
                                         Rule{"Muon", {.kind = OptimizerKind::kMuon}},
                                         Rule{"CAdam", {.kind = OptimizerKind::kCadam}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MatrixRounds, HaveOneMatrixForEachRankAndThoseOfOneSizeTogether) {
  test::run_ranks(3, [](World& world) {
    Mesh mesh(world, [] {
      MeshSizes sizes;
      sizes[Axis::kData] = 3;
      return sizes;
    }());
    Communicator& ranks = mesh.group(Axis::kData);
    const auto matrix = [&](std::size_t span, std::int64_t elements) {
      return CutMatrix{span, elements, {&ranks, (elements + 47) / 48 * 16}};
    };
    // 16 elements are on one rank, 32 on two.
    const std::vector<MatrixRound> rounds = make_matrix_rounds({matrix(0, 100),
                                                                matrix(1, 400),
                                                                matrix(2, 32),
                                                                matrix(3, 100),
                                                                matrix(4, 16),
                                                                matrix(5, 400),
                                                                matrix(6, 100),
                                                                {7, 500, {}},
                                                                matrix(8, 400),
                                                                {9, 200, {}},
                                                                {10, 100, {}},
                                                                {11, 900, {}}},
                                                               700);
    std::vector<std::vector<std::pair<std::size_t, int>>> got;
    for (const MatrixRound& round : rounds) {
      got.emplace_back();
      for (const auto& [span, owner] : round) got.back().emplace_back(span, owner);
    }
    const std::vector<std::vector<std::pair<std::size_t, int>>> wanted{
        {{4, 0}, {7, 0}},         {{9, 0}, {10, 0}},        {{11, 0}},
        {{1, 0}, {5, 1}, {8, 2}}, {{0, 0}, {3, 1}, {6, 2}}, {{2, 0}}};
    EXPECT_EQ(got, wanted);
  });
}

TEST(RowRuns, AreThoseOfTheUnsplitTensors) {
  const std::vector<Parameter> all = parameters(1, 2);
  const auto runs = row_runs(all[1], 14 + 5, 14 * 7);  // q: rows 6 to 11, k: 2 and 3, v: 2 and 3
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].piece->name, "q");
  EXPECT_EQ(runs[0].first_column, 5);
  EXPECT_EQ(runs[0].first_row, 1);
  EXPECT_EQ(runs[0].size, 14 * 5 - 5);
  EXPECT_EQ(runs[0].rows, 5);
  EXPECT_EQ(runs[1].piece->name, "k");
  EXPECT_EQ(runs[1].begin, 14 * 5 - 5);
  EXPECT_EQ(runs[1].place, 5);
  EXPECT_EQ(runs[1].rows, 2);
  EXPECT_EQ(runs[2].place, 7);
  EXPECT_EQ(runs[2].size, 5);
  EXPECT_EQ(runs[2].rows, 1);
  const auto bias = row_runs(all[7], 3, 10);
  ASSERT_EQ(bias.size(), 1U);
  EXPECT_EQ(bias[0].rows, 1);
  EXPECT_EQ(bias[0].columns, 22);
  EXPECT_EQ(rows_of(all[0], 0, all[0].elements()), 30);  // not the padding
}

}  // namespace
}  // namespace piton
