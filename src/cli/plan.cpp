// piton plan: what a layout costs each rank, and how long its pipeline idles.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/planning.h"
#include "cli/command.h"
#include "cli/launch.h"
#include "cli/megatron_flags.h"
#include "parallel/simulate.h"
#include "text/tokenizer.h"

namespace piton::cli {
namespace {

struct PlanOptions {
  std::string simulate;
  int stages = 4;
  int micro_batches = 8;
  std::optional<std::int64_t> ranks;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"simulate",
             "run this schedule on paper, with passes of equal length, instead of planning a model",
             {.choices = {"", "1f1b", "zb-h1"}}},
      simulate);
    v(Option{"stages", "pipeline stages to simulate"}, stages);
    v(Option{"micro-batches", "micro-batches to simulate"}, micro_batches);
    v(Option{"world-size", "ranks of the run (default: tensor x pipeline)"}, ranks);
    v(Option{"json", "print one JSON object"}, json);
  }
};

Simulation simulated(ScheduleKind kind, int stages, int micro_batches) {
  if (stages < 1 || micro_batches < 1) {
    throw Error(Fault::kUsage, "--stages, --micro-batches: got {} and {}, wanted 1 or more", stages,
                micro_batches);
  }
  return simulate(make_schedule(kind, stages, micro_batches), {StepTimes{}});
}

nlohmann::ordered_json to_json(const Simulation& simulation) {
  return {{"bubble", simulation.bubble},
          {"time", simulation.time},
          {"ideal", simulation.ideal},
          {"peak_activations", simulation.peak_activations}};
}

nlohmann::ordered_json to_json(const RankEstimate& estimate, int rank) {
  nlohmann::ordered_json bytes;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    bytes[std::string(name(static_cast<MemoryKind>(kind)))] = estimate.memory.peak_bytes[kind];
  }
  bytes["total"] = estimate.memory.peak_total_bytes;
  const TrafficCounts& sent = estimate.traffic;
  return {{"rank", rank},
          {"parameters", estimate.parameters},
          {"bytes", bytes},
          {"sent_bytes",
           {{"all_reduce", sent.all_reduce_bytes},
            {"all_gather", sent.all_gather_bytes},
            {"reduce_scatter", sent.reduce_scatter_bytes},
            {"point_to_point", sent.point_to_point_bytes}}}};
}

std::string mebibytes(std::int64_t bytes) {
  return fmt::format("{:.1f}", static_cast<double>(bytes) / (1 << 20));
}

void print_table(const std::vector<RankEstimate>& estimates, const Simulation& simulation) {
  std::string text = "rank  parameters    MiB: ";
  for (int kind = 0; kind < kMemoryKinds; ++kind)
    text += fmt::format("{:>14}", name(static_cast<MemoryKind>(kind)));
  text += fmt::format("{:>12}{:>18}\n", "peak", "sent a step, MiB");
  for (std::size_t rank = 0; rank < estimates.size(); ++rank) {
    const RankEstimate& one = estimates[rank];
    const TrafficCounts& sent = one.traffic;
    text += fmt::format("{:4}  {:12}         ", rank, one.parameters);
    for (const std::int64_t bytes : one.memory.peak_bytes)
      text += fmt::format("{:>14}", mebibytes(bytes));
    text += fmt::format("{:>12}{:>18}\n", mebibytes(one.memory.peak_total_bytes),
                        mebibytes(sent.all_reduce_bytes + sent.all_gather_bytes +
                                  sent.reduce_scatter_bytes + sent.point_to_point_bytes));
  }
  text +=
      fmt::format("pipeline bubble {:.1f} % (passes of equal length)\n", 100 * simulation.bubble);
  std::fputs(text.c_str(), stdout);
}

}  // namespace

int run_plan(Invocation& invocation) {
  GeneralOptions general;
  PlanOptions plan_options;
  PretrainOptions options;
  OptionSet set;
  set.add("Plan", plan_options);
  options.add_to(set);
  MegatronFlags megatron;
  set.set_foreign(&megatron);
  refuse_more_arguments(invocation.parse(set, general, true));
  megatron.report(invocation.log);
  megatron.check(options.model);
  if (!plan_options.simulate.empty()) {
    const ScheduleKind kind = plan_options.simulate == "zb-h1"
                                  ? ScheduleKind::kZeroBubbleH1
                                  : ScheduleKind::kOneForwardOneBackward;
    const Simulation simulation = simulated(kind, plan_options.stages, plan_options.micro_batches);
    std::fputs((to_json(simulation).dump() + "\n").c_str(), stdout);
    return 0;
  }
  Engine engine(engine_options(general), invocation.log);
  const int ranks = static_cast<int>(
      plan_options.ranks.value_or(options.parallel.tensor * options.parallel.pipeline));
  if (options.loop.train_iters == 0) options.loop.train_iters = 1;
  std::int64_t vocabulary = 0;
  if (!options.tokenizer.empty()) vocabulary = open_tokenizer(options.tokenizer)->vocabulary_size();
  const RunPlan plan = make_run_plan(options, ranks, vocabulary);
  const std::vector<RankEstimate> estimates =
      estimate_layout(plan, options.loop.micro_batch_size, engine.machine());
  const Simulation simulation =
      simulated(plan.session.schedule, plan.mesh[Axis::kPipeline], plan.micro_batches);
  if (!plan_options.json) {
    print_table(estimates, simulation);
    return 0;
  }
  nlohmann::ordered_json out{
      {"parameters", plan.session.model.parameters()},
      {"flops_per_token", 3 * plan.session.model.forward_flops_per_token(plan.sequence)},
      {"pipeline", to_json(simulation)}};
  for (std::size_t rank = 0; rank < estimates.size(); ++rank)
    out["ranks"].push_back(to_json(estimates[rank], static_cast<int>(rank)));
  std::fputs((out.dump() + "\n").c_str(), stdout);
  return 0;
}

}  // namespace piton::cli
