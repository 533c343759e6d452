// piton plan: what a layout costs each rank, and how long its pipeline idles.
#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "api/planning.h"
#include "base/amounts.h"
#include "base/json.h"
#include "base/options/byte_size.h"
#include "base/options/option_range.h"
#include "cli/command.h"
#include "cli/compatibility/deepspeed_config.h"
#include "cli/compatibility/environment.h"
#include "cli/compatibility/megatron_flags.h"
#include "cli/compatibility/mindspeed_flags.h"
#include "cli/compatibility/model_factors.h"
#include "cli/compatibility/stage_layers.h"
#include "cli/launch.h"
#include "cli/plan/search.h"
#include "cli/plan/speeds.h"
#include "parallel/simulate.h"
#include "text/tokenizer.h"
#include "train/reference_model.h"

namespace piton::cli {
namespace {

constexpr std::int64_t kMostPasses = 1 << 24;  // to simulate: some seconds and 1 GiB

std::vector<std::string> names_of_orders() {
  std::vector<std::string> names;
  for (const auto& [name, order] : pipeline_orders()) names.push_back(name);
  return names;
}

struct PlanOptions {
  std::optional<std::string> simulate;
  int stages = 4;
  std::optional<std::int64_t> micro_batches;
  int chunks = 2;
  bool passes = false;
  std::optional<std::int64_t> ranks;
  std::string device_memory;
  std::vector<std::string> layouts;
  bool search = false;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"simulate",
             "simulate this schedule with passes of equal length, or in proportion to "
             "--manual-mbs, instead of planning a model",
             {.choices = names_of_orders()}},
      simulate);
    v(Option{"stages", "number of pipeline stages to simulate"}, stages);
    v(Option{"micro-batches",
             "number of micro-batches to simulate (default: 8; of opp: those of its preset)"},
      micro_batches);
    v(Option{"chunks", "chunks of each stage to simulate, interleaved, aiao or fifo"}, chunks);
    v(Option{"passes",
             "with --simulate, print every pass of every stage too: its kind, micro-batch, "
             "chunk, start and end"},
      passes);
    v(Option{"world-size", "number of ranks of the run (default: tensor x pipeline)"}, ranks);
    v(Option{"device-memory",
             "memory per rank, such as 80GB or 64GiB; tells whether each rank fits",
             {.placeholder = "SIZE"}},
      device_memory);
    v(Option{"layouts",
             "layouts to compare: tensor x pipeline ranks, and x data ranks unless given by "
             "--world-size",
             {.placeholder = "TxP[xD]"}},
      layouts);
    v(Option{"search",
             "list the layouts of --world-size ranks with the shortest steps, of those that fit "
             "--device-memory"},
      search);
    v(Option{"json", "print one JSON object"}, json);
  }
};

Schedule checked_schedule(const ScheduleSettings& settings, int stages,
                          std::int64_t micro_batches) {
  if (stages < 1 || micro_batches < 1) {
    throw Error(Fault::kUsage, "--stages, --micro-batches: got {} and {}, wanted 1 or more", stages,
                micro_batches);
  }
  check_range("--micro-batches", micro_batches, 1, std::numeric_limits<int>::max());
  const std::int64_t cells = stages * micro_batches;
  check_range("--stages x --micro-batches", cells, 1, kMostPasses);
  check_range("--stages x --micro-batches x --chunks", cells * chunks_of_each_stage(settings), 1,
              kMostPasses);
  return make_schedule(settings, stages, static_cast<int>(micro_batches));
}

// Operations of a layer of the encoder, and of one of the decoder, of a model with both; 1 for
// models of one stack, whose layers are alike.
std::pair<double, double> work_of_layers(const RunPlan& plan) {
  if (plan.session.layout.split_stage == 0) return {1, 1};
  const auto work = [&](std::int64_t of_encoder, std::int64_t of_decoder) {
    ModelConfig model = plan.session.model;
    model.layers = of_decoder;
    model.encoder_decoder->encoder_layers = of_encoder;
    return model.forward_flops_per_token(plan.sequence, plan.decoder_sequence);
  };
  return {work(1, 0) - work(0, 0), work(0, 1) - work(0, 0)};
}

// The pipeline of a plan. Passes are in proportion to layers, where these are given by chunk, and
// to samples, where micro-batches are unequal.
Simulation simulated(const RunPlan& plan) {
  std::vector<StepTimes> times;
  const auto [of_encoder, of_decoder] = work_of_layers(plan);
  for (const std::int64_t layers : plan.session.layout.layers_of_chunks) {
    const bool encodes = std::ssize(times) < plan.session.layout.split_stage;
    const double time = static_cast<double>(layers) * (encodes ? of_encoder : of_decoder);
    times.push_back({.forward = time, .backward_input = time, .backward_weight = time});
  }
  if (times.empty()) times.emplace_back();
  const Schedule schedule =
      checked_schedule(plan.session.schedule, plan.mesh[Axis::kPipeline], plan.micro_batches);
  return simulate(schedule, times, plan.micro_batch_sizes);
}

std::string bubble_line(const RunPlan& plan, const Simulation& simulation) {
  const bool equal = plan.micro_batch_sizes.empty() && plan.session.layout.layers_of_chunks.empty();
  return fmt::format("pipeline bubble {:.1f} % (passes of {})\n", 100 * simulation.bubble,
                     equal ? "equal length"
                     : plan.session.layout.split_stage > 0
                         ? "lengths in proportion to operations of layers x samples"
                         : "lengths in proportion to layers x samples");
}

nlohmann::ordered_json to_json(const Simulation& simulation) {
  return {{"bubble", simulation.bubble},
          {"inner_bubble", simulation.inner_bubble},
          {"time", simulation.time},
          {"ideal", simulation.ideal},
          {"peak_activations", simulation.peak_activations}};
}

// [stages][passes]: kind, micro-batch, chunk of the model, start, end.
nlohmann::ordered_json passes_json(const Schedule& schedule, const Simulation& simulation) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (int stage = 0; stage < schedule.stages; ++stage) {
    nlohmann::ordered_json passes = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < schedule.steps[stage].size(); ++i) {
      const Step& step = schedule.steps[stage][i];
      passes.push_back({name(step.pass), step.micro_batch, step.chunk, simulation.start[stage][i],
                        simulation.end[stage][i]});
    }
    all.push_back(passes);
  }
  return all;
}

nlohmann::ordered_json to_json(const RankEstimate& estimate, int rank, bool async_save) {
  nlohmann::ordered_json bytes;
  for (int kind = 0; kind < kMemoryKinds; ++kind) {
    bytes[std::string(name(static_cast<MemoryKind>(kind)))] = estimate.memory.peak_bytes[kind];
  }
  bytes["total"] = estimate.memory.peak_total_bytes;
  bytes["reserved"] = estimate.memory.reserved_bytes;
  bytes["offloaded"] = estimate.offloaded_bytes;
  const TrafficCounts& sent = estimate.traffic;
  return {{"rank", rank},
          {"parameters", estimate.parameters},
          {"bytes", bytes},
          {"save_copy_bytes", async_save ? estimate.save_copy_bytes : 0},
          {"sent_bytes",
           {{"all_reduce", sent.all_reduce_bytes},
            {"all_gather", sent.all_gather_bytes},
            {"reduce_scatter", sent.reduce_scatter_bytes},
            {"all_to_all", sent.all_to_all_bytes},
            {"point_to_point", sent.point_to_point_bytes}}}};
}

// "6.74 billion", "134 million", "257 thousand"
std::string in_words(std::int64_t count) {
  const auto value = static_cast<double>(count);
  for (const auto& [size, name] : {std::pair(1e12, "trillion"), std::pair(1e9, "billion"),
                                   std::pair(1e6, "million"), std::pair(1e3, "thousand")}) {
    if (value >= size) return fmt::format("{:.3g} {}", value / size, name);
  }
  return fmt::format("{}", count);
}

std::string mebibytes_text(std::int64_t bytes) { return fmt::format("{:.1f}", mebibytes(bytes)); }

bool alike(const RankEstimate& a, const RankEstimate& b) {
  return a.parameters == b.parameters &&
         std::equal(std::begin(a.memory.peak_bytes), std::end(a.memory.peak_bytes),
                    std::begin(b.memory.peak_bytes)) &&
         a.memory.peak_total_bytes == b.memory.peak_total_bytes &&
         sent_bytes(a.traffic) == sent_bytes(b.traffic);
}

// "0-3,8": the ranks in a few letters.
std::string ranges(const std::vector<std::size_t>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

// The plan in one sentence.
std::string in_sentence(const RunPlan& plan, const PretrainOptions& options) {
  const int ranks = plan.mesh.ranks();
  return fmt::format(
      "{} parameters in {}; a step is {} sample{} of {} tokens, {} at a time\n"
      "{} rank{}: tensor {} x {}pipeline {} x {}data {}; ZeRO stage {}\n",
      in_words(plan.session.model.parameters()), name(plan.session.model.dtype), plan.global_batch,
      plan.global_batch == 1 ? "" : "s", plan.sequence, options.loop.micro_batch_size, ranks,
      ranks == 1 ? "" : "s", plan.mesh[Axis::kTensor],
      plan.mesh[Axis::kContext] > 1 ? fmt::format("context {} x ", plan.mesh[Axis::kContext]) : "",
      plan.mesh[Axis::kPipeline],
      plan.mesh[Axis::kExpert] > 1 ? fmt::format("expert {} x ", plan.mesh[Axis::kExpert]) : "",
      plan.mesh[Axis::kData], plan.session.zero_stage);
}

std::string verdict(std::int64_t needed, std::int64_t memory) {
  return needed <= memory
             ? fmt::format("fits: {} of {} MiB", mebibytes_text(needed), mebibytes_text(memory))
             : fmt::format("does not fit: {} of {} MiB are missing",
                           mebibytes_text(needed - memory), mebibytes_text(memory));
}

void print_table(const std::vector<RankEstimate>& estimates, const std::string& bubble,
                 std::int64_t memory, bool async_save, std::int64_t weight_bytes) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t rank = 0; rank < estimates.size(); ++rank) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return alike(estimates[group[0]], estimates[rank]);
    });
    if (same == groups.end()) {
      groups.push_back({rank});
    } else {
      same->push_back(rank);
    }
  }
  std::string text = "ranks     parameters    MiB: ";
  for (int kind = 0; kind < kMemoryKinds; ++kind)
    text += fmt::format("{:>14}", name(static_cast<MemoryKind>(kind)));
  text += fmt::format("{:>12}{:>18}\n", "peak", "sent a step, MiB");
  std::int64_t most = 0;
  std::int64_t reserved = 0;
  std::int64_t offloaded = 0;
  for (const std::vector<std::size_t>& group : groups) {
    const RankEstimate& one = estimates[group[0]];
    text += fmt::format("{:<8}{:12}         ", ranges(group), one.parameters);
    for (const std::int64_t bytes : one.memory.peak_bytes)
      text += fmt::format("{:>14}", mebibytes_text(bytes));
    text += fmt::format("{:>12}{:>18}\n", mebibytes_text(one.memory.peak_total_bytes),
                        mebibytes_text(sent_bytes(one.traffic)));
    most = std::max(most, one.memory.peak_total_bytes);
    reserved = std::max(reserved, one.memory.reserved_bytes);
    offloaded = std::max(offloaded, one.offloaded_bytes);
  }
  text += fmt::format(
      "segments of a rank {} MiB: what is taken from the system, the peak and free places between "
      "tensors; code, threads and batches are in addition\n",
      mebibytes_text(reserved));
  if (offloaded > 0) {
    text += fmt::format("offloaded by a rank {} MiB, which is not in the peak\n",
                        mebibytes_text(offloaded));
  }
  const RankEstimate& first = estimates[0];
  if (first.memory.peak_bytes[static_cast<int>(MemoryKind::kParameters)] >
      first.parameters * weight_bytes * 3 / 2) {
    text +=
        "parameters: the weights, and the packed forms of them that the products of forward and of "
        "backward read\n";
  }
  text += bubble;
  if (async_save) {
    text += fmt::format(
        "saves in the background: a copy of {} MiB a rank, in the memory of the host "
        "(--no-async-save: none)\n",
        mebibytes_text(estimates[0].save_copy_bytes));
  }
  if (memory > 0) text += verdict(most, memory) + "\n";
  std::fputs(text.c_str(), stdout);
}

// Settles --recompute-granularity auto. What was chosen and why, a line, or "".
std::string choose_if_asked(RunPlan& plan, const Machine& machine) {
  if (!plan.memory_limit) return "";
  const RecomputeChoice choice = MachinePlanner(machine).choose_recompute(plan);
  plan.session.layout.recompute = choice.rules;
  return choice.why + "\n";
}

// "8x1", "2x2x4". Returns the number of ranks.
int set_layout(const std::string& text, const std::optional<std::int64_t>& ranks,
               PretrainOptions& options) {
  std::vector<int> sizes;
  std::int64_t replica = 1;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    int size = 0;
    const auto [stop, code] = std::from_chars(at, end, size);
    if (code != std::errc() || size < 1 || size > kMostRanks / replica ||
        (stop < end && *stop != 'x')) {
      sizes.clear();
      break;
    }
    sizes.push_back(size);
    replica *= size;
    at = stop + (stop < end ? 1 : 0);
  }
  if (sizes.size() < 2 || sizes.size() > 3) {
    throw Error(Fault::kUsage,
                "--layouts: got \"{}\", wanted tensor x pipeline ranks, as in 8x1, of at most {} "
                "ranks",
                text, kMostRanks);
  }
  options.parallel.tensor = sizes[0];
  options.parallel.pipeline = sizes[1];
  return sizes.size() == 3 ? static_cast<int>(replica) : options.parallel.planned_ranks(ranks);
}

void print_layouts(const PlanOptions& asked, const PretrainOptions& options,
                   std::int64_t vocabulary, const Machine& machine) {
  const std::int64_t memory = bytes_of_size("--device-memory", asked.device_memory);
  std::string text = fmt::format("{:<12}{:>7}{:>14}{:>20}{:>10}\n", "layout", "ranks", "peak, MiB",
                                 "sent a step, MiB", "bubble");
  for (const std::string& layout : asked.layouts) {
    PretrainOptions one = options;
    const int world = set_layout(layout, asked.ranks, one);
    RunPlan plan = make_run_plan(one, world, vocabulary);
    add_second_models(one, plan);
    choose_if_asked(plan, machine);
    std::int64_t most = 0, sent = 0;
    for (const RankEstimate& rank : estimate_layout(plan, machine)) {
      most = std::max(most, rank.memory.peak_total_bytes);
      sent = std::max(sent, sent_bytes(rank.traffic));
    }
    const Simulation simulation = simulated(plan);
    text += fmt::format("{:<12}{:>7}{:>14}{:>20}{:>8.1f} %", layout, world, mebibytes_text(most),
                        mebibytes_text(sent), 100 * simulation.bubble);
    if (memory > 0) text += "   " + verdict(most, memory);
    text += "\n";
  }
  std::fputs(text.c_str(), stdout);
}

// The sizes of micro-batches to simulate; empty if they are equal.
std::vector<std::int64_t> simulated_sizes(const PlanOptions& asked, PipelineOrder order,
                                          const PipelineOptions& pipeline) {
  std::vector<std::int64_t> sizes = pipeline.listed_sizes();
  if (sizes.empty() && order == PipelineOrder::kOptimized) {
    sizes = preset_sizes(asked.stages);
    if (sizes.empty()) {
      throw Error(Fault::kUsage,
                  "--simulate opp: no preset has {} stages; give --manual-mbs, the samples of "
                  "each micro-batch",
                  asked.stages);
    }
  }
  if (!sizes.empty() && asked.micro_batches && *asked.micro_batches != std::ssize(sizes)) {
    throw Error(Fault::kUsage,
                "--micro-batches: got {}, but {} has {}; leave it out, or change --manual-mbs",
                *asked.micro_batches,
                pipeline.micro_batches.empty() ? "the preset of these stages" : "--manual-mbs",
                sizes.size());
  }
  return sizes;
}

// `--simulate`: one JSON object.
int print_simulation(const PlanOptions& asked, const ParallelOptions& parallel) {
  const PipelineOrder order = std::ranges::find(pipeline_orders(), *asked.simulate,
                                                &std::pair<std::string, PipelineOrder>::first)
                                  ->second;
  const std::vector<std::int64_t> sizes = simulated_sizes(asked, order, parallel.schedule);
  const std::int64_t micro_batches =
      sizes.empty() ? asked.micro_batches.value_or(8) : std::ssize(sizes);
  check_range("--chunks", asked.chunks, 1, kMostPasses);
  const Schedule schedule = checked_schedule({.kind = schedule_kind(order), .chunks = asked.chunks},
                                             asked.stages, micro_batches);
  const Simulation simulation = simulate(schedule, {StepTimes{}}, sizes);
  nlohmann::ordered_json out = to_json(simulation);
  if (asked.passes) out["passes"] = passes_json(schedule, simulation);
  std::fputs((out.dump() + "\n").c_str(), stdout);
  return 0;
}

// What is known of one layout.
struct PlannedLayout {
  std::vector<RankEstimate> ranks;
  Simulation simulation;
  std::optional<StepTime> time;
};

void print_json(const RunPlan& plan, const PlannedLayout& layout, bool async_save) {
  nlohmann::ordered_json out{{"parameters", plan.session.model.parameters()},
                             {"flops_per_token", 3 * plan.forward_flops_per_token()},
                             {"pipeline", to_json(layout.simulation)}};
  if (layout.time) {
    out["step_time"] = {{"seconds", layout.time->seconds},
                        {"work", layout.time->work},
                        {"waited", layout.time->waited},
                        {"idle", layout.time->idle}};
  }
  for (std::size_t rank = 0; rank < layout.ranks.size(); ++rank)
    out["ranks"].push_back(to_json(layout.ranks[rank], static_cast<int>(rank), async_save));
  std::fputs((out.dump() + "\n").c_str(), stdout);
}

}  // namespace

int run_plan(Invocation& invocation) {
  GeneralOptions general;
  PlanOptions plan_options;
  SpeedOptions speed_options;
  PretrainOptions options;
  OptionSet set;
  set.add("Plan", plan_options);
  set.add("Speeds of a plan", speed_options);
  options.add_to(set);
  MegatronFlags megatron;
  set.set_foreign(&megatron);
  refuse_more_arguments(invocation.parse(set, general, true));
  std::vector<std::string> notes = read_environment(set, environment_variables());
  read_mindspeed_flags(megatron, {set, options.model, options.parallel}, notes);
  for (const std::string& note : notes) invocation.log.info(note);
  megatron.report(invocation.log);
  megatron.check(options.model);
  const auto deepspeed = read_deepspeed(megatron, set, options.parallel);
  read_stage_layers(megatron, set, options.parallel, options.model);
  read_model_factors(megatron, set, options.model);
  if (plan_options.simulate) return print_simulation(plan_options, options.parallel);
  const int ranks = options.parallel.planned_ranks(plan_options.ranks);
  const PlannedSpeeds speeds = speed_options.check();
  if (!speeds.device && general.threads == 0) general.threads = threads_of_rank(speeds, ranks);
  if (deepspeed) deepspeed->settle_batch(set, options.parallel.check(ranks).sample_ranks());
  Engine engine(engine_options(general), invocation.log);
  if (options.loop.train_iters == 0 && !options.loop.train_samples &&
      !options.loop.num_train_epochs)
    options.loop.train_iters = 1;
  std::int64_t vocabulary = 0;
  if (!options.tokenizer.empty()) vocabulary = open_tokenizer(options.tokenizer)->vocabulary_size();
  if (speed_options.any() && !speed_options.step_time && !plan_options.search) {
    throw Error(Fault::kUsage, "speeds of devices and links need --step-time or --search");
  }
  if (plan_options.search) {
    const SearchRequest request{
        .ranks = ranks,
        .memory = bytes_of_size("--device-memory", plan_options.device_memory),
        .vocabulary = vocabulary};
    const std::string table = search_layouts(options, request, speeds, engine.machine());
    std::fputs(table.c_str(), stdout);
    return 0;
  }
  if (!plan_options.layouts.empty()) {
    print_layouts(plan_options, options, vocabulary, engine.machine());
    return 0;
  }
  RunPlan plan = make_run_plan(options, ranks, vocabulary);
  add_second_models(options, plan);
  const std::string chosen = choose_if_asked(plan, engine.machine());
  PlannedLayout layout{estimate_layout(plan, engine.machine()), simulated(plan), {}};
  if (speed_options.step_time) {
    KnownTimes known;
    layout.time = estimate_time(plan, engine.machine(), speeds, known);
  }
  if (plan_options.json) {
    print_json(plan, layout, options.saves_in_background());
    return 0;
  }
  std::fputs((in_sentence(plan, options) + chosen).c_str(), stdout);
  print_table(layout.ranks, bubble_line(plan, layout.simulation),
              bytes_of_size("--device-memory", plan_options.device_memory),
              options.saves_in_background(), size_bytes(plan.session.model.dtype));
  const int threads = engine.machine().threads.threads();
  if (layout.time) std::fputs(time_lines(plan, *layout.time, speeds, threads).c_str(), stdout);
  return 0;
}

}  // namespace piton::cli
