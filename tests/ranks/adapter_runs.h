// Runs that train adapters, compared with the same run of one process and with what `plan` counts.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "api/planning.h"
#include "nn/adapters.h"
#include "ranks/setting.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::ranks::adapter_runs {

using test::RunLayout;
using test::TrainingRun;

inline int adapter_steps() { return test::nightly() ? 8 : 5; }

// Compares this rank's part of each canonical tensor with the same part of one process.
using Pieces = std::map<std::string, std::string>;

// Elements of the piece `part`, within the rows of a whole canonical tensor.
inline std::vector<double> part_of(const std::vector<double>& whole, const Piece& part) {
  const std::int64_t columns = part.global.ndim() > 1 ? part.global[1] : 1;
  const std::int64_t width = part.extent.ndim() > 1 ? part.extent[1] : 1;
  const std::int64_t skip = part.start.ndim() > 1 ? part.start[1] : 0;
  std::vector<double> values;
  for (std::int64_t row = 0; row < part.extent[0]; ++row) {
    const auto begin = whole.begin() + (part.start[0] + row) * columns + skip;
    values.insert(values.end(), begin, begin + width);
  }
  return values;
}

// By canonical name: of one process.
inline std::map<std::string, std::vector<double>> by_piece(TrainingRun& run, bool gradients) {
  std::map<std::string, std::vector<double>> all;
  for (Parameter* parameter : run.session().parameters()) {
    if (!parameter->trainable) continue;
    const Tensor rows = gradients
                            ? parameter->gradient
                            : run.session().sharded().whole_value(*parameter, run.machine().stream);
    for (const Piece& piece : parameter->pieces)
      all[piece.name] = test::values(rows.slice(0, piece.local_row, piece.extent[0]));
  }
  return all;
}

inline void expect_parts(TrainingRun& run, const std::map<std::string, std::vector<double>>& whole,
                         bool gradients, double tolerance) {
  double norm = 0;
  for (const auto& [name, one] : whole) {
    for (const double value : one) norm = std::max(norm, std::fabs(value));
  }
  for (Parameter* parameter : run.session().parameters()) {
    if (!parameter->trainable) continue;
    const Tensor rows = gradients
                            ? parameter->gradient
                            : run.session().sharded().whole_value(*parameter, run.machine().stream);
    for (const Piece& piece : parameter->pieces) {
      const auto got = test::values(rows.slice(0, piece.local_row, piece.extent[0]));
      const auto wanted = part_of(whole.at(piece.name), piece);
      ASSERT_EQ(got.size(), wanted.size()) << piece.name;
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], wanted[i], tolerance * norm) << piece.name << " " << i;
    }
  }
}

inline Pieces frozen_pieces(TrainingRun& run) {
  Pieces pieces = run.pieces();
  for (Parameter* parameter : run.session().parameters()) {
    if (!parameter->trainable) continue;
    for (const Piece& piece : parameter->pieces)
      pieces.erase(piece.name + "@" + to_string(piece.start) + to_string(piece.extent));
  }
  return pieces;
}

inline void expect_as_one_process(const ModelConfig& model, const Adapters& adapters,
                                  const std::vector<RunLayout>& list) {
  std::vector<double> alone;
  std::map<std::string, std::vector<double>> gradients, values;
  {
    HostDevice device;
    const auto world = make_single_world(device);
    TrainingRun run(*world, {.name = "one process", .adapters = adapters}, model);
    alone = run.losses(adapter_steps());
    gradients = by_piece(run, true);
    values = by_piece(run, false);
  }
  ASSERT_LT(alone.back(), alone.front());
  for (RunLayout layout : list) {
    SCOPED_TRACE(layout.name);
    layout.adapters = adapters;
    TrainingRun run(ranks::world(), layout, model);
    const Pieces frozen = frozen_pieces(run);
    const std::vector<double> losses = run.losses(adapter_steps());
    for (int step = 0; step < adapter_steps(); ++step)
      ASSERT_NEAR(losses[step], alone[step], 1e-5 * alone[step]) << "step " << step;
    EXPECT_EQ(frozen_pieces(run), frozen);
    expect_parts(run, values, false, 2e-3);
    if (layout.zero == 0) expect_parts(run, gradients, true, 1e-3);
  }
}

// `plan` counts the memory of adapters, and no gradients and moments of frozen parameters.
inline void expect_planned_memory(const ModelConfig& model, const Adapters& adapters,
                                  const std::vector<RunLayout>& list) {
  for (RunLayout layout : list) {
    SCOPED_TRACE(layout.name);
    layout.adapters = adapters;
    TrainingRun run(ranks::world(), layout, model);
    run.losses(3);
    const std::int64_t requests = run.arena().counts().system_allocations;
    run.losses(2);
    EXPECT_EQ(run.arena().counts().system_allocations, requests);
    RunPlan plan{.mesh = layout.mesh,
                 .sequence = test::kSequence,
                 .micro_batch = 2,
                 .global_batch = test::kSamples,
                 .micro_batches = run.session().settings().micro_batches,
                 .session = run.session().settings()};
    const MemoryCounts planned = estimate_layout(plan, run.machine())[ranks::world().rank()].memory;
    const MemoryCounts& counted = run.arena().counts();
    const auto expect_near = [](std::int64_t predicted, std::int64_t taken, double share) {
      EXPECT_NEAR(static_cast<double>(predicted), static_cast<double>(taken),
                  share * static_cast<double>(taken));
    };
    const auto of_kind = [](const MemoryCounts& counts, MemoryKind kind) {
      return counts.peak_bytes[static_cast<std::size_t>(kind)];
    };
    expect_near(planned.peak_total_bytes, counted.peak_total_bytes, 0.03);
    expect_near(of_kind(planned, MemoryKind::kGradients), of_kind(counted, MemoryKind::kGradients),
                0);
    // A rank of a plan has no sums of the norm of other ranks.
    expect_near(of_kind(planned, MemoryKind::kOptimizer), of_kind(counted, MemoryKind::kOptimizer),
                0.03);
  }
}

// What is saved is the adapter with its moments; the model comes from elsewhere. Every layout reads
// what one process has saved, and saves the same bytes again.
// `name`: of a folder of the build.
inline void expect_equal_checkpoints(const ModelConfig& model, const Adapters& some,
                                     const std::vector<RunLayout>& list, const std::string& name) {
  const std::filesystem::path folder =
      std::filesystem::path(PITON_BINARY_DIR) / fmt::format("{}_{}", name, ranks::world().size());
  if (ranks::world().rank() == 0) {
    std::filesystem::remove_all(folder);
    HostDevice device;
    const auto world = make_single_world(device);
    TrainingRun run(*world, {.name = "one process", .adapters = some}, model);
    StoredModel base = run.stored();
    base.parameters = base_parameters(base.parameters);
    base.optimizer = nullptr;
    save_checkpoint(base, run.store(), {folder / "base", {.iteration = 0}, ""});
    run.losses(3);
    StoredModel adapter = run.stored();
    adapter.parameters = trained_parameters(adapter.parameters, some);
    save_checkpoint(adapter, run.store(),
                    {folder / "adapter", {.iteration = 3, .consumed_samples = run.consumed()}, ""});
  }
  ranks::everyone().barrier();
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun alone(*world, {.name = "one process", .adapters = some}, model);
  const auto load = [&](TrainingRun& run) {
    StoredModel base = run.stored();
    base.parameters = base_parameters(base.parameters);
    base.optimizer = nullptr;
    load_checkpoint(find_checkpoint(folder / "base"), base, run.store());
    StoredModel adapter = run.stored();
    adapter.parameters = trained_parameters(adapter.parameters, some);
    run.set_consumed(load_checkpoint(find_checkpoint(folder / "adapter"), adapter, run.store())
                         .consumed_samples);
  };
  load(alone);
  const std::vector<double> next = alone.losses(3);
  for (RunLayout layout : list) {
    SCOPED_TRACE(layout.name);
    layout.adapters = some;
    TrainingRun run(ranks::world(), layout, model);
    load(run);
    StoredModel adapter = run.stored();
    adapter.parameters = trained_parameters(adapter.parameters, some);
    const std::filesystem::path again = save_checkpoint(
        adapter, run.store(),
        {folder / "again", {.iteration = 3, .consumed_samples = run.consumed()}, ""});
    const std::filesystem::path one = find_checkpoint(folder / "adapter");
    EXPECT_EQ(weights_hash(again), weights_hash(one));
    EXPECT_EQ(optimizer_hash(again), optimizer_hash(one));
    const std::vector<double> losses = run.losses(3);
    for (std::size_t i = 0; i < next.size(); ++i) EXPECT_NEAR(losses[i], next[i], 1e-5 * next[i]);
  }
}

}  // namespace piton::ranks::adapter_runs
