// ranks: 2
// Optimizer state, and what layers keep, in a file of each rank: the bits of a run with all of it
// in memory, under every stage of ZeRO and every axis; also where a checkpoint of one is resumed
// as the other.
#include <filesystem>

#include "ranks/setting.h"
#include "support/run_session.h"

namespace piton::ranks::offload_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;

std::filesystem::path folder() { return std::filesystem::path(PITON_BINARY_DIR) / "offload_ranks"; }

ModelConfig model_of(DType dtype) {
  ModelConfig model = preset("llama-tiny");
  model.dtype = dtype;
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  return model;
}

std::vector<RunLayout> state_layouts() {
  OptimizerOptions muon{.kind = OptimizerKind::kMuon};
  return {{.name = "TP 2 + SP", .mesh = mesh(2, 1, 1), .sequence_parallel = true},
          {.name = "TP 2, Muon", .mesh = mesh(2, 1, 1), .optimizer = muon},
          {.name = "PP 2", .mesh = mesh(1, 1, 2)},
          {.name = "DP 2", .mesh = mesh(1, 2, 1)},
          {.name = "ZeRO-1", .mesh = mesh(1, 2, 1), .zero = 1},
          {.name = "ZeRO-1, Muon", .mesh = mesh(1, 2, 1), .zero = 1, .optimizer = muon},
          {.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2},
          {.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3},
          {.name = "ZeRO-3, Muon", .mesh = mesh(1, 2, 1), .zero = 3, .optimizer = muon}};
}

TEST(StateInAFile, GivesTheBitsOfStateInMemory) {
  const ModelConfig model = model_of(DType::kBF16);
  for (const RunLayout& layout : state_layouts()) {
    SCOPED_TRACE(layout.name);
    TrainingRun here(ranks::world(), layout, model);
    RunLayout elsewhere = layout;
    elsewhere.offload.remote_device = folder();
    TrainingRun away(ranks::world(), elsewhere, model);
    EXPECT_EQ(here.losses(3), away.losses(3));
    EXPECT_EQ(here.pieces(), away.pieces());
    EXPECT_GT(away.session().offloaded_bytes(), 0);
    const auto optimizer = static_cast<std::size_t>(MemoryKind::kOptimizer);
    EXPECT_LT(away.arena().counts().in_use_bytes[optimizer], 64 << 10);

    const auto one = save_checkpoint(
        here.stored(), here.store(),
        {folder() / "here", {.iteration = 3, .consumed_samples = here.consumed()}, ""});
    const auto other = save_checkpoint(
        away.stored(), away.store(),
        {folder() / "away", {.iteration = 3, .consumed_samples = away.consumed()}, ""});
    EXPECT_EQ(weights_hash(one), weights_hash(other));
    EXPECT_EQ(optimizer_hash(one), optimizer_hash(other));
    // Each continues from the checkpoint of the other.
    load_checkpoint(other, here.stored(), here.store());
    load_checkpoint(one, away.stored(), away.store());
    EXPECT_EQ(here.losses(2), away.losses(2));
    EXPECT_EQ(here.pieces(), away.pieces());
    ranks::everyone().barrier();
  }
}

// A step uses the same memory whatever the pace of the disk.
TEST(StateInAFile, AsksNothingOfTheSystemAfterTheSecondStep) {
  for (const RunLayout& layout : state_layouts()) {
    SCOPED_TRACE(layout.name);
    RunLayout elsewhere = layout;
    elsewhere.offload.remote_device = folder();
    TrainingRun run(ranks::world(), elsewhere, model_of(DType::kBF16));
    run.losses(2);
    const std::int64_t taken = run.arena().counts().system_allocations;
    run.losses(3);
    EXPECT_EQ(run.arena().counts().system_allocations, taken);
  }
}

std::vector<RunLayout> activation_layouts() {
  const auto zb = ScheduleKind::kZeroBubbleH1;
  return {{.name = "TP 2 + SP", .mesh = mesh(2, 1, 1), .sequence_parallel = true},
          {.name = "TP 2 + SP, 2 slices, attention again",
           .mesh = mesh(2, 1, 1),
           .sequence_parallel = true,
           .slices = 2,
           .rules = {RecomputeGranularity::kSelective}},
          {.name = "PP 2", .mesh = mesh(1, 1, 2)},
          {.name = "PP 2, recompute", .mesh = mesh(1, 1, 2), .recompute = true},
          {.name = "PP 2, ZB-H1", .mesh = mesh(1, 1, 2), .schedule = {zb}},
          {.name = "PP 2, ZB-H1, recompute",
           .mesh = mesh(1, 1, 2),
           .recompute = true,
           .schedule = {zb}},
          {.name = "PP 2, a V", .mesh = mesh(1, 1, 2), .own_schedule = test::letter_v(4)},
          {.name = "DP 2", .mesh = mesh(1, 2, 1)},
          {.name = "ZeRO-3", .mesh = mesh(1, 2, 1), .zero = 3},
          {.name = "ZeRO-3, recompute", .mesh = mesh(1, 2, 1), .recompute = true, .zero = 3}};
}

RunLayout with_kept_elsewhere(const RunLayout& layout) {
  RunLayout elsewhere = layout;
  elsewhere.offload.activations = folder();
  elsewhere.offload.smallest_activation = 1024;  // the model is small
  return elsewhere;
}

TEST(KeptInAFile, GivesTheBitsOfKeptInMemory) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const ModelConfig model = model_of(dtype);
    for (const RunLayout& layout : activation_layouts()) {
      SCOPED_TRACE(layout.name);
      TrainingRun here(ranks::world(), layout, model);
      TrainingRun away(ranks::world(), with_kept_elsewhere(layout), model);
      EXPECT_EQ(here.losses(3), away.losses(3));
      EXPECT_EQ(here.pieces(), away.pieces());
      EXPECT_GT(away.session().offloaded_bytes(), 0);
      const auto activations = static_cast<std::size_t>(MemoryKind::kActivations);
      const std::int64_t less = here.arena().counts().peak_bytes[activations] -
                                away.arena().counts().peak_bytes[activations];
      // Where layers run again, the replay of one may be what needs most.
      EXPECT_GE(less, layout.recompute ? 0 : 1);
    }
  }
}

TEST(KeptInAFile, AsksNothingOfTheSystemAfterTheSecondStep) {
  for (const RunLayout& layout : activation_layouts()) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), with_kept_elsewhere(layout), model_of(DType::kF32));
    run.losses(2);
    const std::int64_t taken = run.arena().counts().system_allocations;
    run.losses(3);
    EXPECT_EQ(run.arena().counts().system_allocations, taken);
  }
}

}  // namespace
}  // namespace piton::ranks::offload_test
