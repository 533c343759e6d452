// ranks: 2 4
// Each collective of a step is left out once (comm/faulty_world.h): the loss, the norm of the
// gradient or what a parameter has changed by then differ by more than the tests of layouts and of
// gradients allow, or an error is thrown. Nothing hangs.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "comm/faulty_world.h"
#include "comm/gathered_values.h"
#include "ranks/setting.h"
#include "support/run_session.h"

namespace piton::ranks::faults_test {

namespace {

using test::mesh;
using test::RunLayout;
using test::TrainingRun;
using test::with_context;

using Weights = std::map<std::string, std::vector<float>>;

// What tests of layouts and gradients compare, over two steps.
struct Outcome {
  std::vector<double> figures;  // losses and norms
  Weights changes;              // of each parameter of this rank
  std::string refusal;
};

constexpr double kTolerance = 1e-5;
constexpr double kToleranceOfGradients = 1e-4;

double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (const double x : values) squares += x * x;
  return std::sqrt(squares);
}

bool differs(const Outcome& one, const Outcome& other) {
  if (!one.refusal.empty()) return true;
  for (std::size_t i = 0; i < one.figures.size(); ++i) {
    if (!(std::abs(one.figures[i] - other.figures[i]) <= kTolerance * other.figures[i]))
      return true;
  }
  double whole = 0;
  for (const auto& [name, change] : other.changes) whole = std::hypot(whole, norm_of(change));
  for (const auto& [name, wanted] : other.changes) {
    std::vector<float> difference = one.changes.at(name);
    for (std::size_t i = 0; i < wanted.size(); ++i) difference[i] -= wanted[i];
    const double share = norm_of(difference) / std::max(norm_of(wanted), 1e-3 * whole);
    if (!(share <= kToleranceOfGradients)) return true;
  }
  return false;
}

Weights weights_of(TrainingRun& run) {
  Weights weights;
  for (const auto& [name, bytes] : run.pieces()) {
    std::vector<float>& values = weights[name];
    values.resize(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return weights;
}

// Weights that are drawn, and no zeros: nobody misses the gather of a bias of zeros.
void start_again(TrainingRun& run) {
  run.session().initialize();
  for (Parameter* parameter : run.session().parameters()) {
    const OwnValues own = run.session().sharded().own_values(*parameter);
    if (!own.values.defined()) continue;
    for (std::int64_t i = 0; i < own.values.elements(); ++i) {
      own.values.data<float>()[i] += 0.05F * std::cos(0.7F * static_cast<float>(own.offset + i));
    }
  }
  run.session().publish_values();
  run.set_consumed(0);
}

// Two steps, of which the first lacks `dropped`.
Outcome two_steps(TrainingRun& run, FaultyWorld& world, std::vector<CollectiveName> dropped) {
  start_again(run);
  const Weights initial = weights_of(run);
  Outcome outcome;
  try {
    for (int step = 0; step < 2; ++step) {
      world.begin_step(step == 0 ? std::move(dropped) : std::vector<CollectiveName>{});
      const StepReport report = run.step(/*lr=*/0.5);
      outcome.figures.push_back(report.loss);
      outcome.figures.push_back(report.grad_norm);
    }
  } catch (const Error& error) {
    if (error.fault() == Fault::kPeer) throw;
    outcome.refusal = error.what();
  }
  world.begin_step();
  outcome.changes = weights_of(run);
  for (auto& [name, values] : outcome.changes) {
    const std::vector<float>& before = initial.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= before[i];
  }
  return outcome;
}

ModelConfig model_of_faults() {
  ModelConfig model = preset("gpt2-tiny");
  model.vocabulary = 101;
  return model;
}

// Plain descent: no state but the weights, and no division that hides the size of a gradient.
OptimizerOptions plain_descent() {
  OptimizerOptions optimizer;
  optimizer.kind = OptimizerKind::kSgd;
  optimizer.sgd_momentum = 0;
  optimizer.clip_grad = 0.5;
  return optimizer;
}

std::vector<RunLayout> layouts_of_faults(int ranks) {
  if (ranks == 2) {
    return {{.name = "TP 2", .mesh = mesh(2, 1, 1)},
            {.name = "TP 2 + SP, 2 slices",
             .mesh = mesh(2, 1, 1),
             .sequence_parallel = true,
             .slices = 2},
            {.name = "CP 2", .mesh = with_context(mesh(1, 1, 1), 2)},
            {.name = "CP 2, all-to-all, ZeRO-1",
             .mesh = with_context(mesh(1, 1, 1), 2),
             .zero = 1,
             .context = {{ContextExchange::kHeads}}},
            {.name = "CP 2, gathered",
             .mesh = with_context(mesh(1, 1, 1), 2),
             .context = {{ContextExchange::kGather}}},
            {.name = "ZeRO-2", .mesh = mesh(1, 2, 1), .zero = 2}};
  }
  return {{.name = "TP 2 x PP 2", .mesh = mesh(2, 1, 2)},
          {.name = "TP 2 x DP 2 + SP", .mesh = mesh(2, 2, 1), .sequence_parallel = true},
          {.name = "DP 4, ZeRO-3, 2 instances", .mesh = mesh(1, 4, 1), .zero = 3, .instances = 2},
          {.name = "CP 4, heads of 2, rings of 2",
           .mesh = with_context(mesh(1, 1, 1), 4),
           .context = {{ContextExchange::kHeadsAndRing}, 2}},
          {.name = "PP 2 x DP 2, ZeRO-1", .mesh = mesh(1, 2, 2), .zero = 1}};
}

// The union over ranks: ranks of other stages have other collectives.
std::set<CollectiveName> seen_anywhere(const std::vector<CollectiveName>& own) {
  std::string lines;
  for (const CollectiveName& one : own) {
    lines += fmt::format("{}\t{}\t{}\n", one.group, one.kind, one.number);
  }
  std::set<CollectiveName> all;
  for (const std::string& its : ranks::everyone().gather_bytes(lines)) {
    for (std::size_t at = 0; at < its.size();) {
      const std::size_t first = its.find('\t', at);
      const std::size_t second = its.find('\t', first + 1);
      const std::size_t end = its.find('\n', second);
      all.insert({its.substr(at, first - at), its.substr(first + 1, second - first - 1),
                  std::stoll(its.substr(second + 1, end - second - 1))});
      at = end + 1;
    }
  }
  return all;
}

TEST(Faults, EachCollectiveOfAStepIsMissedIfItIsLeftOut) {
  for (RunLayout layout : layouts_of_faults(ranks::world().size())) {
    SCOPED_TRACE(layout.name);
    layout.optimizer = plain_descent();
    layout.micro = std::min<std::int64_t>(4, test::kSamples / layout.mesh[Axis::kData]);
    HostDevice device;
    FaultyWorld world(ranks::world(), device);
    TrainingRun run(world, layout, model_of_faults());
    const Outcome whole = two_steps(run, world, {});
    ASSERT_EQ(whole.refusal, "");
    const Outcome again = two_steps(run, world, {});
    ASSERT_EQ(again.figures, whole.figures);
    ASSERT_TRUE(again.changes == whole.changes);
    start_again(run);
    world.begin_step();
    run.step(/*lr=*/0.5);
    const std::set<CollectiveName> collectives = seen_anywhere(world.seen());
    EXPECT_GE(collectives.size(), 3U);
    for (const CollectiveName& one : collectives) {
      const Outcome without = two_steps(run, world, {one});
      const bool unnoticed = true_on_all(ranks::everyone(), !differs(without, whole));
      EXPECT_FALSE(unnoticed) << to_string(one);
    }
    if (ranks::world().rank() == 0) {
      std::printf("%s: %zu collectives\n", layout.name.c_str(), collectives.size());
    }
  }
}

}  // namespace
}  // namespace piton::ranks::faults_test
