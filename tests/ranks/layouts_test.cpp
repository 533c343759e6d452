// ranks: 2 4
// Any layout gives the losses of one process over eight steps with dropout, at night twenty. By
// day a model meets some of the layouts (layout_cases.h). Models: GPT-2, LLaMA, one with norms and
// biases of its heads and a head of normalized rows, one like Gemma (norms at the ends of branches,
// soft caps, a window in every second layer), one with latent attention, and one with a window, a
// norm after its embedding and ALiBi (six heads, so that their slopes are not powers of one
// number), and one with prompts that see themselves and roots of distances in place of the window;
// and two with layers that predict later tokens, and one with layers that have states;
// and BERT with norms before the branches and after the sums; and T5 in Megatron's and in its
// published form, with stages of the encoder and of the decoder. A checkpoint of one layout loads
// under another with the same bits.
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>
#include <vector>

#include "api/planning.h"
#include "layout_cases.h"
#include "ranks/setting.h"
#include "saved_runs.h"
#include "support/run_session.h"

namespace piton::ranks::layouts_test {

namespace {

using ranks::layouts_of;
using ranks::optimizer_of;
using ranks::small;
using test::mesh;
using test::RunLayout;
using test::TrainingRun;

const int kSteps = test::nightly() ? 20 : 8;

class Layouts : public testing::TestWithParam<const char*> {};

TEST_P(Layouts, GiveTheLossesAndTheInitialWeightsOfOneProcess) {
  const ModelConfig model = small(GetParam());
  std::vector<double> alone;
  std::map<std::string, std::string> whole;
  {
    HostDevice device;
    const auto world = make_single_world(device);
    TrainingRun run(*world, {.name = "one process", .optimizer = optimizer_of(GetParam())}, model);
    whole = run.pieces();
    alone = run.losses(kSteps);
  }
  ASSERT_LT(alone.back(), alone.front());
  for (RunLayout layout : layouts_of(GetParam(), ranks::world().size())) {
    SCOPED_TRACE(layout.name);
    layout.optimizer = optimizer_of(GetParam());
    TrainingRun run(ranks::world(), layout, model);
    std::map<std::string, const Piece*> cuts;
    for (Parameter* parameter : run.session().parameters()) {
      for (const Piece& piece : parameter->pieces)
        cuts[piece.name + "@" + to_string(piece.start) + to_string(piece.extent)] = &piece;
    }
    for (const auto& [key, bytes] : run.pieces()) {
      const Piece& piece = *cuts.at(key);
      Shape zero = piece.start;
      for (int dim = 0; dim < zero.ndim(); ++dim) zero[dim] = 0;
      const std::string& rows =
          whole.at(piece.name + "@" + to_string(zero) + to_string(piece.global));
      const std::int64_t row = piece.global.ndim() > 1 ? piece.global[1] * 4 : 4;
      const std::int64_t part = piece.extent.ndim() > 1 ? piece.extent[1] * 4 : 4;
      const std::int64_t skip = piece.start.ndim() > 1 ? piece.start[1] * 4 : 0;
      for (std::int64_t i = 0; i < piece.extent[0]; ++i) {
        ASSERT_EQ(bytes.compare(i * part, part, rows, (piece.start[0] + i) * row + skip, part), 0)
            << key << ": row " << i << " starts from other bits";
      }
    }
    const std::vector<double> losses = run.losses(kSteps);
    for (int step = 0; step < kSteps; ++step) {
      ASSERT_NEAR(losses[step], alone[step], 1e-5 * alone[step]) << "step " << step;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Layouts,
                         testing::Values("gpt2-tiny", "llama-tiny", "alibi", "roots, prompts",
                                         "head norms", "gemma", "parallel branches", "experts",
                                         "experts, balanced", "experts, shared", "experts, biased",
                                         "sinks", "latent", "states", "mamba", "mamba, groups",
                                         "convolutions", "factors", "joint norms",
                                         "norms without gains", "growing queries", "later tokens",
                                         "later tokens, experts", "bert-tiny", "bert, post-norm",
                                         "t5-tiny", "t5, published"));

// The table of tokens is that of the head too in gpt2-tiny, on one stage or on two. The rates of
// the groups have another ratio in each step.
TEST(RatesOfGroups, AreTheSameUnderEveryLayout) {
  const auto losses_of = [](TrainingRun& run) {
    std::vector<double> losses;
    for (int step = 0; step < 4; ++step) {
      GroupRates rates = 3e-3;
      rates.vocabulary = step % 2 == 0 ? 3e-2 : 0;
      losses.push_back(run.step(rates).loss);
    }
    return losses;
  };
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    for (const OptimizerKind kind :
         {OptimizerKind::kAdam, OptimizerKind::kMuon, OptimizerKind::kCadam}) {
      OptimizerOptions optimizer{.kind = kind};
      HostDevice device;
      const auto world = make_single_world(device);
      TrainingRun base(*world, {.name = "one rate", .optimizer = optimizer}, small(name));
      const std::vector<double> one_rate = losses_of(base);
      optimizer.separate_rates = {RateGroup::kVocabulary};
      TrainingRun one(*world, {.name = "one process", .optimizer = optimizer}, small(name));
      const std::vector<double> alone = losses_of(one);
      EXPECT_GT(std::abs(alone[1] - one_rate[1]), 1e-3 * alone[1]);
      for (RunLayout layout : layouts_of(name, ranks::world().size())) {
        if (kind != OptimizerKind::kAdam && layout.zero == 0) continue;
        SCOPED_TRACE(
            fmt::format("{}, optimizer {}, {}", name, static_cast<int>(kind), layout.name));
        layout.optimizer = optimizer;
        TrainingRun run(ranks::world(), layout, small(name));
        const std::vector<double> losses = losses_of(run);
        for (std::size_t step = 0; step < alone.size(); ++step)
          EXPECT_NEAR(losses[step], alone[step], 1e-4 * alone[step]) << "step " << step;
      }
    }
  }
}

// Each tensor rank sends its part of a boundary, and the ranks of the next stage gather it.
TEST(ScatteredBoundaries, HaveTheSameBitsAndTheirPartOfTheBytes) {
  if (ranks::world().size() != 4) return;
  std::vector<double> losses[2];
  std::int64_t sent[2] = {};
  for (const bool scatters : {false, true}) {
    const std::int64_t before = ranks::world().traffic().point_to_point_bytes;
    TrainingRun run(ranks::world(),
                    {.name = "TP 2 x PP 2", .mesh = mesh(2, 1, 2), .scatters = scatters},
                    small("gpt2-tiny"));
    losses[scatters] = run.losses(3);
    sent[scatters] = ranks::world().traffic().point_to_point_bytes - before;
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_GT(sent[0], 0);
  EXPECT_EQ(2 * sent[1], sent[0]);
}

// --log-params-norm and --log-num-zeros-in-grad: padded rows do not count, copies count once.
TEST(Figures, AreTheSameUnderEveryLayout) {
  const auto figures_of = [](TrainingRun& run) {
    run.losses(3);
    return run.session().optimizer().figures(run.machine().stream);
  };
  for (const char* name : {"gpt2-tiny", "llama-tiny"}) {
    const ModelConfig model = small(name);
    HostDevice device;
    const auto world = make_single_world(device);
    TrainingRun one(*world, {.name = "one process"}, model);
    const OptimizerFigures alone = figures_of(one);
    EXPECT_GT(alone.num_zeros, model.hidden);  // at least a row that was not looked up
    EXPECT_GT(alone.params_norm, 1);
    for (const RunLayout& layout : layouts_of(name, ranks::world().size())) {
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      TrainingRun run(ranks::world(), layout, model);
      const OptimizerFigures figures = figures_of(run);
      // Gradients of the biases of keys are 0 but for rounding, which differs.
      EXPECT_NEAR(static_cast<double>(figures.num_zeros), static_cast<double>(alone.num_zeros),
                  model.qkv_biases ? static_cast<double>(model.layers * model.hidden) / 4 : 0);
      EXPECT_NEAR(figures.params_norm, alone.params_norm, 1e-6 * alone.params_norm);
    }
  }
}

// Every layout that the two-rank and four-rank runs have, saved after some steps and loaded by one
// process, and the reverse.
TEST(Checkpoints, AreTheSameUnderEveryLayout) {
  for (const char* name : {"gpt2-tiny", "latent", "states", "mamba", "convolutions", "joint norms",
                           "bert-tiny", "t5-tiny"}) {
    const ModelConfig model = small(name);
    const std::filesystem::path from_one = ranks::save_from_one_process(model, "layouts");
    for (const RunLayout& layout : layouts_of(name, ranks::world().size())) {
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      TrainingRun run(ranks::world(), layout, model);
      const std::filesystem::path saved = ranks::expect_saved_again(run, from_one);
      const double next = run.step().loss;
      EXPECT_NEAR(ranks::next_loss_of_one_process(model, saved), next, 1e-6 * next);
      ranks::everyone().barrier();
    }
  }
}

TEST(Resume, StepsInTwoPartsAreThoseInOneToTheBit) {
  const int part = test::nightly() ? 10 : 4;
  const std::filesystem::path folder =
      std::filesystem::path(PITON_BINARY_DIR) / fmt::format("resume_{}", ranks::world().size());
  if (ranks::world().rank() == 0) std::filesystem::remove_all(folder);
  ranks::everyone().barrier();
  for (const char* name :
       {"gpt2-tiny", "llama-tiny", "later tokens", "bert, post-norm", "t5, published"}) {
    const ModelConfig model = small(name);
    for (const RunLayout& layout : layouts_of(name, ranks::world().size(), 2)) {
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      std::vector<double> through;
      std::map<std::string, std::string> end;
      {
        TrainingRun run(ranks::world(), layout, model);
        through = run.losses(part);
        save_checkpoint(run.stored(), run.store(),
                        {folder, {.iteration = part, .consumed_samples = run.consumed()}, ""});
        through = run.losses(part);
        end = run.pieces();
      }
      TrainingRun again(ranks::world(), layout, model);
      again.set_consumed(
          load_checkpoint(find_checkpoint(folder), again.stored(), again.store()).consumed_samples);
      EXPECT_EQ(again.losses(part), through);
      EXPECT_EQ(again.pieces(), end);
      ranks::everyone().barrier();
    }
  }
}

// The plan runs the same code without memory, so the prediction is as good as the counting.
TEST(Plan, PredictsTheHighWaterMarkOfEveryRank) {
  for (const char* name : {"llama-tiny", "latent", "states", "mamba", "convolutions", "joint norms",
                           "later tokens", "t5-tiny", "t5, published"}) {
    const ModelConfig model = small(name);
    const bool both = model.encoder_decoder.has_value();
    std::vector<RunLayout> planned = layouts_of(name, ranks::world().size());
    planned.push_back({.name = "one process"});
    for (const RunLayout& layout : planned) {
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      HostDevice device;
      const auto alone = make_single_world(device);
      const bool one = layout.mesh.ranks() == 1;
      TrainingRun run(one ? *alone : ranks::world(), layout, model);
      run.losses(2);
      const TrafficCounts before = ranks::world().traffic();
      run.step();
      const TrafficCounts after = ranks::world().traffic();
      RunPlan plan{.mesh = layout.mesh,
                   .sequence = test::kSequence,
                   .decoder_sequence = both ? test::kSequence / 2 : 0,
                   .micro_batch = layout.micro,
                   .global_batch = test::kSamples,
                   .micro_batches = run.session().settings().micro_batches,
                   .micro_batch_sizes = layout.sizes_of_rank(),
                   .session = run.session().settings()};
      const std::vector<RankEstimate> estimates = estimate_layout(plan, run.machine());
      const RankEstimate& estimate = estimates[one ? 0 : ranks::world().rank()];
      if (model.latent && !one) {
        EXPECT_EQ(estimate.traffic.all_gather_bytes,
                  after.all_gather_bytes - before.all_gather_bytes);
        EXPECT_EQ(estimate.traffic.reduce_scatter_bytes,
                  after.reduce_scatter_bytes - before.reduce_scatter_bytes);
      }
      const std::int64_t predicted = estimate.memory.peak_total_bytes;
      const std::int64_t counted = run.arena().counts().peak_total_bytes;
      EXPECT_NEAR(static_cast<double>(predicted), static_cast<double>(counted),
                  0.05 * static_cast<double>(counted));
    }
  }
}

// Whatever the pace of the ranks: each sleeps before its steps, by other times in every step.
TEST(Memory, OfStep3IsAtTheAddressesOfLaterSteps) {
  const int steps = test::nightly() ? 10 : 5;
  using Requests = std::vector<std::pair<const std::byte*, std::int64_t>>;
  const ModelConfig model = small("llama-tiny");
  for (const RunLayout& layout : layouts_of("llama-tiny", ranks::world().size())) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    Requests third;
    Requests last;
    Requests* seen = nullptr;
    run.arena().observe([&](const std::byte* data, std::int64_t bytes) {
      if (seen != nullptr) seen->emplace_back(data, bytes);
    });
    std::uint64_t pace = 5 + 77 * static_cast<std::uint64_t>(ranks::world().rank());
    run.session().pipeline().observer = [&](const Step&) {
      pace = pace * 6364136223846793005ULL + 1442695040888963407ULL;
      std::this_thread::sleep_for(std::chrono::microseconds((pace >> 33) % 2000));
    };
    for (int step = 1; step <= steps; ++step) {
      seen = step == 3 ? &third : step == steps ? &last : nullptr;
      run.step();
    }
    run.arena().observe(nullptr);
    EXPECT_GT(third.size(), 100);
    EXPECT_TRUE(third == last);
  }
}

// After the second step no request reaches the system: slots are found again.
TEST(Memory, IsNotAskedOfTheSystemAfterTheSecondStep) {
  for (const char* name : {"gpt2-tiny", "t5, published"}) {
    for (const RunLayout& layout : layouts_of(name, ranks::world().size())) {
      SCOPED_TRACE(std::string(name) + ", " + layout.name);
      TrainingRun run(ranks::world(), layout, small(name));
      run.losses(2);
      const std::int64_t taken = run.arena().counts().system_allocations;
      run.losses(3);
      EXPECT_EQ(run.arena().counts().system_allocations, taken);
    }
  }
}

}  // namespace
}  // namespace piton::ranks::layouts_test
