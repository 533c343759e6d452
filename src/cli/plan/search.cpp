#include "cli/plan/search.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/amounts.h"
#include "base/error.h"
#include "train/reference_model.h"

namespace piton::cli {
namespace {

constexpr std::size_t kShown = 10;
constexpr std::int64_t kLargestMicroBatch = 64;

// What is tried in place of 1F1B where a layout with a pipeline is among the first ones. Fold3D's
// all-in-all-out is not: it holds the activations of all micro-batches.
struct TriedSchedule {
  PipelineOrder order = PipelineOrder::kOneForwardOneBackward;
  std::optional<std::int64_t> chunks;  // nullopt: the schedule's own number
};
constexpr TriedSchedule kTriedSchedules[] = {{PipelineOrder::kInterleaved, 2},
                                             {PipelineOrder::kInterleaved, 4},
                                             {PipelineOrder::kZeroBubbleH1, {}},
                                             {PipelineOrder::kZeroBubbleV, {}},
                                             {PipelineOrder::kDualPipeV, {}}};

struct Candidate {
  PretrainOptions options;
  RunPlan plan;
  std::int64_t peak_bytes = 0;  // of the rank that needs most
  StepTime time;
};

class LayoutSearch {
 public:
  LayoutSearch(const SearchRequest& request, const PlannedSpeeds& speeds, const Machine& machine)
      : request_(request), speeds_(speeds), machine_(machine) {}

  // All ZeRO stages, micro-batches and, where none fits without, recomputation of one mesh. Context
  // ranks divide single samples: several are divided among data ranks, which send less.
  void try_mesh(const PretrainOptions& options, int tensor, int pipeline, int context) {
    const int replicas = request_.ranks / tensor / pipeline;  // of the weights
    const std::int64_t largest = context > 1 ? 1 : kLargestMicroBatch;
    for (const int zero : {0, 1, 2, 3}) {
      if (zero > 0 && replicas == 1) break;
      for (std::int64_t micro_batch = 1; micro_batch <= largest; micro_batch *= 2) {
        PretrainOptions one = options;
        one.parallel.tensor = tensor;
        one.parallel.pipeline = pipeline;
        one.parallel.context = context;
        one.parallel.linears.sequence_parallel = tensor > 1;
        one.parallel.use_distributed_optimizer = false;
        one.parallel.zero_stage = zero;
        one.loop.micro_batch_size = micro_batch;
        if (!fits(one)) {
          one.parallel.recompute = RecomputeRequest::kFull;
          if (!fits(one)) break;  // nor does a larger micro-batch
        }
      }
    }
  }

  // The other exchanges of the layouts with context ranks that are first now.
  void try_exchanges() {
    for (PretrainOptions& one : first_with(&ParallelOptions::context)) {
      ParallelOptions& parallel = one.parallel;
      for (const char* exchange : {"a2a", "allgather"}) {
        parallel.context_exchanges = {exchange};
        fits(one);
      }
      parallel.context_exchanges = {"a2a+p2p"};
      for (int heads = 2; heads < parallel.context; ++heads) {
        if (parallel.context % heads != 0) continue;
        parallel.hierarchical_context = {heads, parallel.context / heads};
        fits(one);
      }
    }
    sort();
  }

  // The other schedules of the layouts that are first now.
  void try_schedules() {
    for (PretrainOptions& one : first_with(&ParallelOptions::pipeline)) {
      for (const TriedSchedule& tried : kTriedSchedules) {
        one.parallel.schedule.schedule = tried.order;
        one.parallel.schedule.chunks = tried.chunks;
        fits(one);
      }
    }
    sort();
  }

  // Of the layouts that are first now, those with several ranks of this kind.
  std::vector<PretrainOptions> first_with(int ParallelOptions::*ranks) {
    sort();
    std::vector<PretrainOptions> first;
    for (std::size_t i = 0; i < std::min(found_.size(), kShown); ++i) {
      if (found_[i].options.parallel.*ranks > 1) first.push_back(found_[i].options);
    }
    return first;
  }

  const std::vector<Candidate>& found() const { return found_; }
  std::optional<std::int64_t> least_bytes() const { return least_bytes_; }
  const std::optional<Error>& refusal() const { return refusal_; }
  std::size_t planned() const { return planned_; }

 private:
  // Whether these options make a run that fits, which is then timed. What can't be a run is passed
  // over as if it fitted.
  bool fits(const PretrainOptions& options) {
    Candidate candidate{.options = options};
    bool fits = false;
    try {
      candidate.plan = make_run_plan(options, request_.ranks, request_.vocabulary);
      add_second_models(options, candidate.plan);
      for (const RankEstimate& stage : estimate_stages(candidate.plan, machine_)) {
        candidate.peak_bytes = std::max(candidate.peak_bytes, stage.memory.peak_total_bytes);
      }
      fits = request_.memory == 0 || candidate.peak_bytes <= request_.memory;
      if (fits) candidate.time = estimate_time(candidate.plan, machine_, speeds_, known_);
    } catch (const Error& error) {
      if (error.fault() != Fault::kUsage) throw;
      if (!refusal_) refusal_ = error;
      return true;
    }
    ++planned_;
    least_bytes_ = std::min(least_bytes_.value_or(candidate.peak_bytes), candidate.peak_bytes);
    if (fits) found_.push_back(std::move(candidate));
    return fits;
  }

  void sort() {
    std::ranges::stable_sort(found_, {}, [](const Candidate& one) { return one.time.seconds; });
  }

  const SearchRequest& request_;
  const PlannedSpeeds& speeds_;
  const Machine& machine_;
  KnownTimes known_;
  std::vector<Candidate> found_;
  std::optional<std::int64_t> least_bytes_;
  std::optional<Error> refusal_;
  std::size_t planned_ = 0;
};

const std::string& schedule_of(const Candidate& one) {
  const PipelineOrder order = one.options.parallel.schedule.schedule;
  return std::ranges::find(pipeline_orders(), order, &std::pair<std::string, PipelineOrder>::second)
      ->first;
}

// Whether keys travel around all context ranks, in all layers.
bool has_rings(const ParallelOptions& parallel) {
  return parallel.context_exchanges == ParallelOptions().context_exchanges;
}

// How many context ranks there are, and what they exchange if not keys in a ring.
std::string context_of(const ParallelOptions& parallel) {
  const int ranks = parallel.context;
  if (ranks == 1 || has_rings(parallel)) return fmt::format("{}", ranks);
  if (parallel.context_exchanges.size() > 1) return fmt::format("{} mixed", ranks);
  const ContextForms forms = parallel.context_forms();
  if (!forms.has(ContextExchange::kHeadsAndRing))
    return fmt::format("{} {}", ranks, parallel.context_exchanges.front());
  return fmt::format("{} {}x{}", ranks, forms.heads, ranks / forms.heads);
}

std::string flags_of(const Candidate& one) {
  const ParallelOptions& parallel = one.options.parallel;
  std::string flags = fmt::format(
      "--tensor-model-parallel-size {} --pipeline-model-parallel-size {} --micro-batch-size {}",
      parallel.tensor, parallel.pipeline, one.options.loop.micro_batch_size);
  if (parallel.linears.sequence_parallel) flags += " --sequence-parallel";
  if (parallel.context > 1) flags += fmt::format(" --context-parallel-size {}", parallel.context);
  if (parallel.context > 1 && !has_rings(parallel))
    flags += fmt::format(" --cp-comm-type {}", fmt::join(parallel.context_exchanges, " "));
  if (!parallel.hierarchical_context.empty()) {
    flags += fmt::format(" --hierarchical-context-parallel-sizes {}",
                         fmt::join(parallel.hierarchical_context, " "));
  }
  if (parallel.schedule.schedule != PipelineOrder::kOneForwardOneBackward)
    flags += fmt::format(" --pipeline-schedule {}", schedule_of(one));
  if (parallel.schedule.chunks)
    flags += fmt::format(" --num-virtual-stages-per-pipeline-rank {}", *parallel.schedule.chunks);
  if (parallel.zero_stage > 0) flags += fmt::format(" --zero-stage {}", parallel.zero_stage);
  if (parallel.recompute == RecomputeRequest::kFull) flags += " --recompute-granularity full";
  return flags;
}

// Those that divide `ranks`, or the one that was asked for.
std::vector<int> context_sizes(const PretrainOptions& options, int ranks) {
  if (options.parallel.context > 1) return {options.parallel.context};
  std::vector<int> sizes;
  for (int size = 1; size <= ranks; ++size) {
    if (ranks % size == 0) sizes.push_back(size);
  }
  return sizes;
}

std::string row(const Candidate& one) {
  const MeshSizes& mesh = one.plan.mesh;
  const double tokens = static_cast<double>(one.plan.global_batch * one.plan.sequence);
  const double others = one.time.waited + one.time.idle;
  const std::optional<std::int64_t>& chunks = one.options.parallel.schedule.chunks;
  const std::string schedule =
      mesh[Axis::kPipeline] == 1 ? "-"
                                 : schedule_of(one) + (chunks ? fmt::format(" x{}", *chunks) : "");
  return fmt::format(
      "{:<12}{:>13}{:>16}{:>6}{:>13}{:>11}{:>14.1f}{:>10.4g}{:>12.4g}{:>15.1f} %\n",
      fmt::format("{}x{}x{}", mesh[Axis::kTensor], mesh[Axis::kPipeline], mesh[Axis::kData]),
      context_of(one.options.parallel), schedule, one.plan.session.zero_stage,
      one.options.loop.micro_batch_size,
      one.options.parallel.recompute == RecomputeRequest::kFull ? "full" : "none",
      mebibytes(one.peak_bytes), one.time.seconds, tokens / one.time.seconds,
      100 * others / one.time.seconds);
}

}  // namespace

std::string search_layouts(const PretrainOptions& options, const SearchRequest& request,
                           const PlannedSpeeds& speeds, const Machine& machine) {
  if (!options.loop.global_batch_size) {
    throw Error(Fault::kUsage,
                "--search: steps of equal size are compared; add --global-batch-size");
  }
  if (options.parallel.recompute != RecomputeRequest::kNone) {
    throw Error(Fault::kUsage,
                "--search: decides what is computed again; leave out "
                "--recompute-granularity");
  }
  LayoutSearch search(request, speeds, machine);
  for (int tensor = 1; tensor <= std::min(request.ranks, speeds.ranks_of_host); ++tensor) {
    if (request.ranks % tensor != 0) continue;
    for (int pipeline = 1; pipeline <= request.ranks / tensor; ++pipeline) {
      if (request.ranks / tensor % pipeline != 0) continue;
      for (const int context : context_sizes(options, request.ranks / tensor / pipeline))
        search.try_mesh(options, tensor, pipeline, context);
    }
  }
  const PipelineOptions& given = options.parallel.schedule;
  const bool is_free = given.schedule == PipelineOrder::kOneForwardOneBackward &&
                       !given.fold_mode && !given.chunks && !given.layers_of_chunk &&
                       given.optimizing_flag() == nullptr;
  if (is_free) search.try_schedules();
  if (has_rings(options.parallel)) search.try_exchanges();
  const std::vector<Candidate>& found = search.found();
  if (found.empty() && search.least_bytes()) {
    throw Error(Fault::kMemory,
                "--device-memory: got {:.1f} MiB, wanted at least {:.1f}, which the smallest of {} "
                "layouts needs; give more ranks, or offload with --remote-device",
                mebibytes(request.memory), mebibytes(*search.least_bytes()), search.planned());
  }
  if (found.empty()) throw *search.refusal();
  std::string text = fmt::format("{:<12}{:>13}{:>16}{:>6}{:>13}{:>11}{:>14}{:>10}{:>12}{:>17}\n",
                                 "layout", "context", "schedule", "ZeRO", "micro-batch",
                                 "recompute", "peak, MiB", "step, s", "tokens/s", "waited or idle");
  for (std::size_t i = 0; i < std::min(found.size(), kShown); ++i) text += row(found[i]);
  text += fmt::format("of {} layouts, {} fit; the first one: {}\n", search.planned(), found.size(),
                      flags_of(found.front()));
  return text;
}

}  // namespace piton::cli
