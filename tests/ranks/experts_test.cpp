// ranks: 2 4
// Experts that are divided over ranks give the losses, gradients, gradient norms, weights and
// checkpoints of one process, alone and under every other kind of parallelism, with as many experts
// of a token as a rank has, with more, and with fewer; next to an MLP that all tokens share, and in
// some layers alone; with inputs that are weighted, and with a random router.
#include <gtest/gtest.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "api/planning.h"
#include "nn/expert_mlp.h"
#include "ranks/run_bits.h"
#include "ranks/setting.h"
#include "saved_runs.h"
#include "support/run_session.h"
#include "support/sampled.h"

namespace piton::ranks::experts_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;
using test::with_context;
using test::with_experts;

constexpr int kSteps = 5;

// With 8 experts and 3 choices the last model has, in its second step, a token whose third and
// fourth expert are so close that rounding chooses.
ModelConfig small(const std::string& name) {
  ModelConfig model = preset("llama-tiny");
  model.experts = name == "few"        ? ExpertFacts{.experts = 4, .choices = 2}
                  : name == "balanced" ? ExpertFacts{.experts = 12, .choices = 2}
                  : name == "samples"  ? ExpertFacts{.experts = 12, .choices = 3}
                                       : ExpertFacts{.experts = 8, .choices = 4};
  if (name == "balanced") model.experts->balance_factor = 0.1;
  if (name == "samples") {
    model.experts->balance_factor = 0.1;
    model.experts->balances_samples = true;
    model.experts->z_factor = 0.02;
  }
  if (name == "shared") {
    model.experts->choices = 2;
    model.experts->ffn_hidden = 48;
    model.experts->shared_ffn_hidden = 64;
    model.experts->shared_gate = true;
    model.experts->dense_layers = {0, 1};  // the first of two stages has no experts
  }
  if (name == "shared, added") {
    model.experts->choices = 2;
    model.experts->ffn_hidden = 48;
    model.experts->shared_ffn_hidden = 64;
    model.biases = true;
  }
  if (name == "biased") {
    model.experts->choices = 3;
    model.experts->score = ScoreKind::kSigmoid;
    model.experts->weight_factor = 1.5;
    model.experts->choice_bias = true;
    model.experts->bias_rate = 0.02;
    model.experts->groups = {.count = 4, .chosen = 2, .largest = 2};
  }
  if (name == "later tokens") {
    model.experts->choices = 2;
    model.experts->ffn_hidden = 48;
    model.experts->balance_factor = 0.1;
    model.mtp_layers = 1;
  }
  if (name == "limited") {  // several choices of each micro-batch are dropped
    model.experts->choices = 2;
    model.experts->balance_factor = 0.1;
    model.experts->capacity_factor = 0.9;
  }
  if (name == "first") {
    model.experts->choices = 3;
    model.experts->score = ScoreKind::kSigmoid;
    model.experts->choice_bias = true;
    model.experts->bias_rate = 0.02;
    model.experts->capacity_factor = 1;
    model.experts->keeps_first = true;
  }
  if (name == "inputs") {  // one expert of a token, whose input is weighted
    model.experts->choices = 1;
    model.experts->normalized = false;
    model.experts->weighs_inputs = true;
    model.experts->balance_factor = 0.1;
  }
  if (name == "random") {
    model.experts->choices = 2;
    model.experts->balance_factor = 0.1;
    model.experts->z_factor = 0.02;
    model.experts->capacity_factor = 0.9;
    model.experts->random_router = true;
  }
  if (name == "norms") {
    model.end_norms = model.gains_from_one = true;
    model.biases = true;
    model.gate_rule = {.bound = 0.5, .offset = 1};
  }
  model.vocabulary = 101;
  model.hidden_dropout = 0.1;
  model.attention_dropout = 0.1;
  return model;
}

// E ranks of the expert axis, in addition to tensor, data and pipeline ranks.
RunLayout divided(std::string name, int e, const MeshSizes& sizes) {
  return {.name = std::move(name), .mesh = with_experts(sizes, e)};
}

std::vector<RunLayout> layouts_of_two() {
  std::vector<RunLayout> all(6, divided("EP 2", 2, mesh(1, 1, 1)));
  for (int zero = 1; zero <= 3; ++zero) {
    RunLayout& one = all[static_cast<std::size_t>(zero)];
    one.name += fmt::format(", ZeRO-{}", zero);
    one.zero = zero;
    one.recompute = zero == 2;
  }
  all[4].name += ", MLP again";
  all[4].rules = {.granularity = RecomputeGranularity::kSelective, .parts = {.mlp = true}};
  all[5].name += ", single rows";
  all[5].sends_rows = true;
  return all;
}

std::vector<RunLayout> layouts() {
  if (ranks::world().size() == 2) return layouts_of_two();
  std::vector<RunLayout> all;
  all.push_back(divided("EP 4", 4, mesh(1, 1, 1)));
  all.push_back(divided("EP 4, ZeRO-3, recompute", 4, mesh(1, 1, 1)));
  all.back().zero = 3;
  all.back().recompute = true;
  all.push_back(divided("EP 4, single rows", 4, mesh(1, 1, 1)));
  all.back().sends_rows = true;
  all.push_back(divided("EP 2 x TP 2", 2, mesh(2, 1, 1)));
  all.push_back(divided("EP 2 x TP 2 + SP", 2, mesh(2, 1, 1)));
  all.back().sequence_parallel = true;
  all.push_back(divided("EP 2 x TP 2 + SP, ZeRO-3, recompute", 2, mesh(2, 1, 1)));
  all.back().sequence_parallel = true;
  all.back().zero = 3;
  all.back().recompute = true;
  all.push_back(divided("EP 2 x PP 2", 2, mesh(1, 1, 2)));
  all.push_back(divided("EP 2 x PP 2, ZB-H1, ZeRO-1, recompute", 2, mesh(1, 1, 2)));
  all.back().schedule = {ScheduleKind::kZeroBubbleH1};
  all.back().zero = 1;
  all.back().recompute = true;
  all.push_back(divided("EP 2 x PP 2, interleaved", 2, mesh(1, 1, 2)));
  all.back().schedule = {.kind = ScheduleKind::kInterleaved, .chunks = 2};
  all.push_back(divided("EP 2 x CP 2", 2, with_context(mesh(1, 1, 1), 2)));
  all.push_back(divided("EP 2 x CP 2, all-to-all, ZeRO-2", 2, with_context(mesh(1, 1, 1), 2)));
  all.back().context = {{ContextExchange::kHeads}};
  all.back().zero = 2;
  all.push_back(divided("EP 2 x DP 2", 2, mesh(1, 2, 1)));
  all.push_back(divided("EP 2 x DP 2, ZeRO-1, 2 instances", 2, mesh(1, 2, 1)));
  all.back().zero = 1;
  all.back().instances = 2;
  all.push_back(divided("EP 2 x DP 2, ZeRO-3", 2, mesh(1, 2, 1)));
  all.back().zero = 3;
  return all;
}

// At night all, by day a third, which another `turn` continues.
std::vector<RunLayout> layouts_of(std::size_t turn) { return test::sampled(layouts(), 3, turn); }

std::size_t turn_of(const std::string& model) {
  return model == "few" || model == "samples" ? 0 : model == "balanced" ? 1 : 2;
}

// The biases of choices of this rank's stages, by name.
std::map<std::string, std::vector<double>> biases_of(TrainingRun& run) {
  std::map<std::string, std::vector<double>> all;
  for (Parameter* parameter : run.session().parameters()) {
    if (!is_choice_bias(parameter->name)) continue;
    all[parameter->name] =
        test::values(run.session().sharded().whole_value(*parameter, run.machine().stream));
  }
  return all;
}

// The gradients of the next batch, by canonical tensor.
std::map<std::string, std::vector<double>> gradients_of(TrainingRun& run) {
  run.gradients();
  std::map<std::string, std::vector<double>> all;
  for (const Parameter* parameter : run.session().parameters()) {
    for (const Piece& piece : parameter->pieces)
      all[piece.name] =
          test::values(parameter->gradient.slice(0, piece.local_row, piece.extent[0]));
  }
  return all;
}

class ExpertParallel : public testing::TestWithParam<const char*> {};

TEST_P(ExpertParallel, GivesTheLossesAndGradientNormsOfOneProcess) {
  const ModelConfig model = small(GetParam());
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun one(*world, {.name = "one process"}, model);
  std::vector<StepReport> alone;
  for (int step = 0; step < kSteps; ++step) alone.push_back(one.step());
  ASSERT_LT(alone.back().loss, alone.front().loss);
  const auto biases = biases_of(one);
  for (const RunLayout& layout : layouts_of(turn_of(GetParam()))) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    for (const StepReport& wanted : alone) {
      const StepReport got = run.step();
      EXPECT_NEAR(got.loss, wanted.loss, 1e-5 * wanted.loss);
      EXPECT_NEAR(got.grad_norm, wanted.grad_norm, 1e-4 * wanted.grad_norm);
      ASSERT_EQ(std::ssize(got.figures), model.mtp_layers + (model.experts->z_factor == 0 ? 1 : 2));
      // Context ranks round attention differently: a choice of expert near a tie may change.
      const double near = layout.mesh[Axis::kContext] > 1 ? 2e-4 : 1e-5;
      for (std::size_t i = 0; i < got.figures.size(); ++i)
        EXPECT_NEAR(got.figures[i].sum, wanted.figures[i].sum, near * wanted.figures[i].sum);
    }
    // Counts of tokens are whole numbers: the same bits everywhere.
    for (const auto& [name, bias] : biases_of(run)) EXPECT_EQ(bias, biases.at(name)) << name;
  }
}

TEST_P(ExpertParallel, GivesTheGradientsOfOneProcess) {
  const ModelConfig model = small(GetParam());
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun one(*world, {.name = "one process"}, model);
  const auto alone = gradients_of(one);
  for (const RunLayout& layout : layouts_of(0)) {
    const bool whole = layout.mesh[Axis::kTensor] == 1;
    if (!whole || layout.zero > 0) continue;  // parts of the gradients are on other ranks
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    auto own = gradients_of(run);
    std::map<std::string, std::vector<double>> wanted;
    for (const auto& [name, gradient] : own) {
      if (is_choice_bias(name)) {
        EXPECT_EQ(gradient, alone.at(name)) << name;
      }
      wanted[name] = alone.at(name);
    }
    std::erase_if(own, [](const auto& one) { return is_choice_bias(one.first); });
    std::erase_if(wanted, [](const auto& one) { return is_choice_bias(one.first); });
    EXPECT_LT(test::largest_difference(own, wanted), 1e-5);
    const std::int64_t experts = model.experts->experts / layout.mesh[Axis::kExpert];
    EXPECT_TRUE(
        own.contains(fmt::format("layers.{}.mlp.experts.{}.up.weight", model.layers - 1,
                                 run.session().mesh().coordinate(Axis::kExpert) * experts)) ||
        layout.mesh[Axis::kPipeline] > 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, ExpertParallel,
                         testing::Values("few", "balanced", "samples", "norms", "shared",
                                         "shared, added", "later tokens", "biased", "limited",
                                         "first", "inputs", "random"));

// Rows that go to the ranks of their experts alone: the losses and weights of the rows that all
// ranks gather, to the bit, with fewer bytes.
TEST_P(ExpertParallel, GivesTheBitsOfGatheredRowsIfSingleRowsAreSent) {
  ModelConfig model = small(GetParam());
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    model.dtype = dtype;
    for (RunLayout layout : layouts_of(turn_of(GetParam()) + 1)) {
      SCOPED_TRACE(layout.name + (dtype == DType::kBF16 ? ", bf16" : ""));
      const auto reports_and_weights = [&](bool sends) {
        layout.sends_rows = sends;
        return ranks::bits_of(layout, model);
      };
      const TrafficCounts start = ranks::world().traffic();
      const auto gathered = reports_and_weights(false);
      const TrafficCounts middle = ranks::world().traffic();
      const auto sent = reports_and_weights(true);
      const TrafficCounts end = ranks::world().traffic();
      EXPECT_EQ(sent.reports, gathered.reports);
      EXPECT_TRUE(sent.pieces == gathered.pieces);
      const auto moved = [](const TrafficCounts& from, const TrafficCounts& to) {
        return to.all_gather_bytes + to.reduce_scatter_bytes + to.all_to_all_bytes -
               from.all_gather_bytes - from.reduce_scatter_bytes - from.all_to_all_bytes;
      };
      EXPECT_LE(moved(middle, end), moved(start, middle));
      // The first stage of "shared" has no experts.
      if (layout.mesh[Axis::kPipeline] == 1) {
        EXPECT_GT(end.all_to_all_bytes, middle.all_to_all_bytes);
      }
    }
  }
}

TEST(ExpertParallelHalf, IsNearOneProcess) {
  ModelConfig model = small("few");
  model.dtype = DType::kBF16;
  HostDevice device;
  const auto world = make_single_world(device);
  TrainingRun one(*world, {.name = "one process"}, model);
  const std::vector<double> alone = one.losses(kSteps);
  for (const RunLayout& layout : layouts_of(1)) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    const std::vector<double> losses = run.losses(kSteps);
    for (int step = 0; step < kSteps; ++step)
      EXPECT_NEAR(losses[step], alone[step], 5e-3 * alone[step]) << "step " << step;
  }
}

TEST(ExpertParallelEvaluation, GivesTheLossOfOneProcess) {
  const auto loss_of = [](TrainingRun& run) {
    const Mesh& mesh = run.session().mesh();
    const int ranks = mesh.sizes().sample_ranks();
    const auto batches =
        test::batches(0, mesh.sample_rank(), ranks, run.session().settings().model.vocabulary,
                      std::vector<std::int64_t>(4 / ranks, 2));
    const Session::Evaluation found = run.session().evaluate(batches);
    return found.loss_sum / found.loss_tokens;
  };
  HostDevice device;
  const auto world = make_single_world(device);
  for (const char* name : {"few", "limited"}) {
    const ModelConfig model = small(name);
    TrainingRun one(*world, {.name = "one process"}, model);
    const double alone = loss_of(one);
    for (const RunLayout& layout : layouts_of(2)) {
      SCOPED_TRACE(layout.name);
      TrainingRun run(ranks::world(), layout, model);
      EXPECT_NEAR(loss_of(run), alone, 1e-6 * alone) << name;
    }
  }
}

// Saved by one process, loaded and saved by expert ranks, and loaded by one process again.
TEST(ExpertParallelCheckpoints, AreThoseOfOneProcess) {
  const ModelConfig model = small("biased");
  const std::filesystem::path from_one = ranks::save_from_one_process(model, "experts");
  for (const RunLayout& layout : layouts_of(2)) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    const std::filesystem::path saved = ranks::expect_saved_again(run, from_one);
    const double next = run.step().loss;
    // And resumed under the same layout: the same bits.
    TrainingRun again(ranks::world(), layout, model);
    EXPECT_EQ(ranks::next_loss(again, saved), next);
    EXPECT_NEAR(ranks::next_loss_of_one_process(model, saved), next, 1e-6 * next);
    ranks::everyone().barrier();
  }
}

TEST(ExpertParallelPlan, PredictsMemoryAndBytesOfEveryRank) {
  for (const char* name : {"biased", "norms", "limited", "inputs"}) {
    const ModelConfig model = small(name);
    for (const RunLayout& layout : layouts_of(0)) {
      SCOPED_TRACE(layout.name);
      TrainingRun run(ranks::world(), layout, model);
      run.losses(2);
      const TrafficCounts before = ranks::world().traffic();
      run.step();
      const TrafficCounts after = ranks::world().traffic();
      const RunPlan plan{.mesh = layout.mesh,
                         .sequence = test::kSequence,
                         .micro_batch = layout.micro,
                         .global_batch = test::kSamples,
                         .micro_batches = run.session().settings().micro_batches,
                         .session = run.session().settings()};
      const RankEstimate planned =
          estimate_layout(plan, run.machine())[static_cast<std::size_t>(ranks::world().rank())];
      EXPECT_EQ(planned.traffic.all_gather_bytes, after.all_gather_bytes - before.all_gather_bytes);
      EXPECT_EQ(planned.traffic.reduce_scatter_bytes,
                after.reduce_scatter_bytes - before.reduce_scatter_bytes);
      const auto counted = static_cast<double>(run.arena().counts().peak_total_bytes);
      EXPECT_NEAR(static_cast<double>(planned.memory.peak_total_bytes), counted, 0.05 * counted);
      if (layout.mesh.sample_ranks() != ranks::world().size() || layout.zero > 0 ||
          layout.recompute || layout.sends_rows ||
          layout.rules.granularity != RecomputeGranularity::kNone)
        continue;
      // Of each row and layer: in forward x, k choices and k weights are gathered, and the sum is
      // scattered; in backward its gradient is gathered, and those of x and the weights are
      // scattered. All are of 4 bytes. Weights that have multiplied x stay where they are.
      const std::int64_t e = layout.mesh[Axis::kExpert];
      const std::int64_t rows =
          model.layers * test::kSamples * test::kSequence / layout.mesh.sample_ranks();
      const std::int64_t k = model.experts->choices;
      const std::int64_t weights = model.experts->weighs_inputs ? 0 : k;
      EXPECT_EQ(after.all_gather_bytes - before.all_gather_bytes,
                rows * (e - 1) * 4 * (2 * model.hidden + k + weights));
      EXPECT_EQ(after.reduce_scatter_bytes - before.reduce_scatter_bytes,
                rows * (e - 1) * 4 * (2 * model.hidden + weights));
    }
  }
}

// What a rank sends in a step.
TrafficCounts traffic_of_step(TrainingRun& run) {
  const TrafficCounts before = ranks::world().traffic();
  run.step();
  TrafficCounts after = ranks::world().traffic();
  after.all_gather_bytes -= before.all_gather_bytes;
  after.reduce_scatter_bytes -= before.reduce_scatter_bytes;
  after.all_to_all_bytes -= before.all_to_all_bytes;
  return after;
}

// Where a token chooses all experts, single rows are all rows.
TEST(ExpertParallelRows, OfAllExpertsHaveTheBytesOfTheTable) {
  ModelConfig model = small("few");
  model.experts->choices = model.experts->experts;
  RunLayout layout = divided("", ranks::world().size(), mesh(1, 1, 1));
  layout.sends_rows = true;
  TrainingRun run(ranks::world(), layout, model);
  run.step();
  const TrafficCounts sent = traffic_of_step(run);
  const std::int64_t e = ranks::world().size();
  const std::int64_t rows =
      model.layers * test::kSamples * test::kSequence / layout.mesh.sample_ranks() * (e - 1);
  const std::int64_t k = model.experts->choices, h = model.hidden;
  EXPECT_EQ(sent.all_gather_bytes, rows * 4 * k);
  EXPECT_EQ(sent.reduce_scatter_bytes, 0);
  // In forward x and weights go there and sums come back, and in backward the reverse.
  EXPECT_EQ(sent.all_to_all_bytes, rows * 4 * (2 * (h + k) + 2 * h));
}

// A random router chooses all experts as often.
TEST(ExpertParallelRows, ArePlannedAsOfUniformChoices) {
  ModelConfig model = small("random");
  model.experts->capacity_factor = 0;
  for (RunLayout layout : layouts_of(1)) {
    SCOPED_TRACE(layout.name);
    layout.sends_rows = true;
    TrainingRun run(ranks::world(), layout, model);
    run.losses(2);
    const TrafficCounts sent = traffic_of_step(run);
    const RunPlan plan{.mesh = layout.mesh,
                       .sequence = test::kSequence,
                       .micro_batch = layout.micro,
                       .global_batch = test::kSamples,
                       .micro_batches = run.session().settings().micro_batches,
                       .session = run.session().settings()};
    const RankEstimate planned =
        estimate_layout(plan, run.machine())[static_cast<std::size_t>(ranks::world().rank())];
    EXPECT_EQ(planned.traffic.all_gather_bytes, sent.all_gather_bytes);
    EXPECT_EQ(planned.traffic.reduce_scatter_bytes, sent.reduce_scatter_bytes);
    const auto exchanged = static_cast<double>(sent.all_to_all_bytes);
    EXPECT_NEAR(static_cast<double>(planned.traffic.all_to_all_bytes), exchanged, 0.1 * exchanged);
    const auto counted = static_cast<double>(run.arena().counts().peak_total_bytes);
    EXPECT_NEAR(static_cast<double>(planned.memory.peak_total_bytes), counted, 0.05 * counted);
  }
}

// Tokens choose other experts in every step; sizes do not depend on it.
TEST(ExpertParallelMemory, OfStep3IsAtTheAddressesOfStep6) {
  using Requests = std::vector<std::pair<const std::byte*, std::int64_t>>;
  const ModelConfig model = small("norms");
  std::vector<RunLayout> all = layouts_of(1);
  for (RunLayout& layout : layouts_of(2)) {
    layout.name += ", single rows";
    layout.sends_rows = true;
    all.push_back(layout);
  }
  for (const RunLayout& layout : all) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(ranks::world(), layout, model);
    Requests third, last;
    Requests* seen = nullptr;
    run.arena().observe([&](const std::byte* data, std::int64_t bytes) {
      if (seen != nullptr) seen->emplace_back(data, bytes);
    });
    std::int64_t taken = 0;
    for (int step = 1; step <= 6; ++step) {
      seen = step == 3 ? &third : step == 6 ? &last : nullptr;
      run.step();
      if (step == 2) taken = run.arena().counts().system_allocations;
    }
    run.arena().observe(nullptr);
    EXPECT_GT(third.size(), 100U);
    EXPECT_TRUE(third == last);
    EXPECT_EQ(run.arena().counts().system_allocations, taken);
  }
}

}  // namespace
}  // namespace piton::ranks::experts_test
