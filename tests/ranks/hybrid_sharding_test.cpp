// ranks: 2 4
// Shards that several groups of ranks hold (--num-distributed-optimizer-instances): the losses and
// checkpoints of one process, and the bytes and memory of the formulas.
#include <gtest/gtest.h>

#include <filesystem>

#include "ranks/setting.h"
#include "saved_runs.h"
#include "support/run_session.h"

namespace piton::ranks::hybrid_sharding_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;

constexpr int kSteps = 6;

ModelConfig small(const std::string& name) {
  ModelConfig model = preset(name);
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  return model;
}

std::vector<RunLayout> layouts() {
  const int ranks = ranks::world().size();
  std::vector<RunLayout> all;
  for (const int zero : {1, 2, 3}) {
    all.push_back({.name = fmt::format("ZeRO-{}, 2 instances", zero),
                   .mesh = mesh(1, ranks, 1),
                   .zero = zero,
                   .instances = 2});
  }
  if (ranks == 4) {
    all.push_back(
        {.name = "ZeRO-3, 4 instances", .mesh = mesh(1, 4, 1), .zero = 3, .instances = 4});
    all.push_back({.name = "CP 2 x DP 2, ZeRO-1",
                   .mesh = test::with_context(mesh(1, 2, 1), 2),
                   .zero = 1,
                   .instances = 2});
    all.push_back(
        {.name = "PP 2 x DP 2, ZeRO-2", .mesh = mesh(1, 2, 2), .zero = 2, .instances = 2});
    RunLayout muon{.name = "Muon, ZeRO-3", .mesh = mesh(1, 4, 1), .zero = 3, .instances = 2};
    all.push_back(muon);
    all.back().optimizer.kind = OptimizerKind::kMuon;
  }
  return all;
}

std::vector<double> losses_alone(const RunLayout& layout, const ModelConfig& model) {
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun one(*world, {.name = "one process", .optimizer = layout.optimizer}, model);
  return one.losses(kSteps);
}

TEST(HybridSharding, GivesTheLossesOfOneProcess) {
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    const ModelConfig model = small(name);
    for (const RunLayout& layout : layouts()) {
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      const std::vector<double> alone = losses_alone(layout, model);
      TrainingRun run(ranks::world(), layout, model);
      const std::vector<double> losses = run.losses(kSteps);
      for (int step = 0; step < kSteps; ++step)
        EXPECT_NEAR(losses[step], alone[step], 1e-5 * alone[step]) << "step " << step;
    }
  }
}

TEST(HybridSharding, SavesWhatOneProcessSaves) {
  const ModelConfig model = small("gpt2-tiny");
  const std::filesystem::path from_one = ranks::save_from_one_process(model, "hybrid");
  for (const RunLayout& layout : layouts()) {
    if (layout.optimizer.kind != OptimizerKind::kAdam) continue;
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    ranks::expect_saved_again(run, from_one);
    ranks::everyone().barrier();
  }
}

// With n ranks in N instances a rank holds N / n of the optimizer's state; of G bytes of gradients
// it scatters G (n/N - 1) / (n/N), and sums its part over the instances: 2 G N/n (N - 1) / N.
TEST(HybridSharding, SendsAndHoldsWhatTheFormulasSay) {
  const ModelConfig model = small("gpt2-tiny");
  const int ranks = ranks::world().size();
  const auto run_of = [&](int instances) {
    return RunLayout{.name = "", .mesh = mesh(1, ranks, 1), .zero = 1, .instances = instances};
  };
  const auto sent_by = [&](int instances) {
    TrainingRun run(ranks::world(), run_of(instances), model);
    run.step();
    const TrafficCounts before = ranks::world().traffic();
    run.step();
    TrafficCounts sent = ranks::world().traffic();
    sent.reduce_scatter_bytes -= before.reduce_scatter_bytes;
    sent.all_reduce_bytes -= before.all_reduce_bytes;
    std::int64_t gradients = 0;
    for (const ShardUnit& unit : run.session().sharded().units()) gradients += unit.size * 4;
    const std::int64_t of_instance = ranks / instances;
    EXPECT_EQ(sent.reduce_scatter_bytes, gradients / of_instance * (of_instance - 1));
    const double part = static_cast<double>(gradients) / static_cast<double>(of_instance);
    EXPECT_NEAR(static_cast<double>(sent.all_reduce_bytes), 2 * part * (instances - 1) / instances,
                0.01 * part);
    return run.arena().counts().peak_bytes[static_cast<int>(MemoryKind::kOptimizer)];
  };
  const std::int64_t whole = sent_by(1);
  const std::int64_t twice = sent_by(2);
  EXPECT_NEAR(static_cast<double>(twice), 2.0 * static_cast<double>(whole),
              0.1 * static_cast<double>(whole));
}

}  // namespace
}  // namespace piton::ranks::hybrid_sharding_test
