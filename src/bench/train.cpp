#include "bench/train.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "api/planning.h"
#include "bench/collectives.h"
#include "bench/products.h"
#include "bench/switched_kernels.h"
#include "parallel/simulate.h"
#include "session/session.h"
#include "train/run/memory_check.h"

namespace piton {
namespace {

std::vector<MicroBatch> random_batches(const TrainBenchOptions& options) {
  std::uint32_t state = 1;
  const auto next = [&] {
    state = state * 1664525U + 1013904223U;  // Numerical Recipes' generator
    return static_cast<std::int32_t>(
        (state >> 8) % static_cast<std::uint32_t>(options.plan.session.model.vocabulary));
  };
  std::vector<MicroBatch> batches;
  std::int64_t first = 0;
  for (const std::int64_t samples : options.plan.sizes_of_micro_batches()) {
    const RunPlan& plan = options.plan;
    const bool has_source = plan.decoder_sequence > 0;
    const std::int64_t sequence = has_source ? plan.decoder_sequence : plan.sequence;
    const std::int64_t rows = samples * sequence;
    MicroBatch batch{.samples = samples, .sequence = sequence, .sample_index = first};
    first += samples;
    for (std::int64_t row = 0; row < rows; ++row) {
      batch.tokens.push_back(next());
      batch.labels.push_back(next());
      batch.positions.push_back(static_cast<std::int32_t>(row % sequence));
    }
    batch.loss_mask.assign(static_cast<std::size_t>(rows), 1.0F);
    if (plan.session.model.encoder) {
      // Words are masked at equal distances.
      const auto distance = static_cast<std::size_t>(std::max(1.0, 1 / plan.masked_share));
      for (std::size_t row = 0; row < batch.labels.size(); ++row) {
        if (row % distance == 0) continue;
        batch.labels[row] = kNoLabel;
        batch.loss_mask[row] = 0;
      }
    }
    if (has_source) {
      batch.source.sequence = plan.sequence;
      for (std::int64_t i = 0; i < samples * plan.sequence; ++i)
        batch.source.tokens.push_back(next());
      batch.source.lengths.assign(static_cast<std::size_t>(samples),
                                  static_cast<std::int32_t>(plan.sequence));
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

class TrainRun {
 public:
  TrainRun(const Machine& machine, const TrainBenchOptions& options)
      : options_(options),
        plain_(machine),
        kernels_(machine.kernels),
        passes_(machine.kernels),
        observed_{.world = machine.world,
                  .device = machine.device,
                  .kernels = kernels_,
                  .arena = machine.arena,
                  .stream = machine.stream,
                  .threads = machine.threads,
                  .log = machine.log,
                  .sections = times_passes() ? &passes_ : nullptr},
        batches_(random_batches(options)) {}

  TrainBench operator()() {
    TrainBench bench;
    const double tokens = static_cast<double>(options_.plan.micro_batch *
                                              options_.plan.micro_batches * options_.plan.sequence);
    bench.tokens = tokens * options_.plan.mesh.sample_ranks();
    // The ranks of one replica share the work on its tokens.
    const int share = options_.plan.mesh.ranks() / options_.plan.mesh.sample_ranks();
    bench.flops = 3 * options_.plan.forward_flops_per_token() * tokens / share;
    const RankEstimate planned = estimate_own_rank(options_.plan, plain_);
    bench.planned_bytes = planned.memory.peak_total_bytes;
    const auto everyone = make_group_of_all(plain_.world, "bench");
    check_memory(memory_of_ranks(plain_, planned.memory, *everyone));

    bench.start_seconds = seconds_of([&] {
      mesh_.emplace(plain_.world, options_.plan.mesh);
      session_.emplace(observed_, *mesh_, options_.plan.session);
      session_->initialize();
    });
    bench.first_step_seconds = seconds_of([&] { step(); });
    step();
    bench.memory = plain_.arena.counts();
    bench.resident_bytes = peak_resident_bytes();

    RecordedProducts products(plain_.kernels);
    if (options_.floor) {
      kernels_.send_to(products);
      step();
      kernels_.send_to_inner();
    }
    session_->record_steps(options_.record_steps);
    if (options_.record_steps && session_->obstacle_to_recording().empty()) {
      for (int i = 0; i < 2; ++i) step();
    }
    PeakSamples peak(plain_, options_.plan.session.model.dtype);
    passes_.clear();
    if (times_passes()) kernels_.send_to(passes_.kernels());
    const std::int64_t sent = sent_bytes(plain_.world.traffic());
    for (int round = 0; round < options_.rounds; ++round) {
      peak.sample();
      bench.step.seconds.push_back(seconds_of([&] { step(); }));
      products.sample(plain_);
    }
    kernels_.send_to_inner();
    MeasuredRank mine = figures(bench, planned);
    mine.sent_bytes = (sent_bytes(plain_.world.traffic()) - sent) / options_.rounds;
    bench.ranks = gather_ranks(mine, *everyone);
    if (times_passes()) add_bubble(bench);
    bench.peak = peak.flops_per_second();
    bench.products = products.figures();
    bench.floor_seconds = products.seconds();
    session_->record_steps(false);
    if (options_.profile) profile(bench);
    if (options_.step_time) bench.planned_time = planned_time(*everyone);
    return bench;
  }

 private:
  bool times_passes() const {
    return options_.plan.mesh[Axis::kPipeline] > 1 &&
           plain_.device.place().kind == DeviceKind::kHost;
  }

  MeasuredRank figures(const TrainBench& bench, const RankEstimate& planned) const {
    MeasuredRank mine{.planned_bytes = planned.memory.peak_total_bytes,
                      .peak_bytes = bench.memory.peak_total_bytes,
                      .planned_reserved_bytes = planned.memory.reserved_bytes,
                      .resident_bytes = bench.resident_bytes,
                      .planned_sent_bytes = sent_bytes(planned.traffic),
                      .passes = {}};
    if (times_passes()) mine.passes = passes_.steps();
    return mine;
  }

  void add_bubble(TrainBench& bench) const {
    const std::vector<double>& seconds = bench.step.seconds;
    bench.bubble = measured_bubble(
        bench.ranks, static_cast<std::size_t>(std::ranges::min_element(seconds) - seconds.begin()));
    const RunPlan& plan = options_.plan;
    const Schedule schedule =
        make_schedule(plan.session.schedule, plan.mesh[Axis::kPipeline], plan.micro_batches);
    bench.formula_bubble = simulate(schedule, {StepTimes{}}, plan.micro_batch_sizes).bubble;
  }

  // Without the session, whose memory the calls need.
  StepTime planned_time(Communicator& everyone) {
    session_.reset();
    mesh_.reset();
    const PlannedSpeeds speeds = measured_links(plain_);
    KnownTimes known;
    everyone.barrier();
    return estimate_time(options_.plan, plain_, speeds, known);
  }

  void step() {
    session_->train_step(batches_, consumed_, 1e-4);
    plain_.stream.synchronize();
    consumed_ += options_.plan.global_batch;
  }

  // Keeps the fastest round, so that all numbers are of one step.
  void profile(TrainBench& bench) {
    for (int round = 0; round < options_.rounds; ++round) {
      TimedKernels timed(plain_.kernels);
      kernels_.send_to(timed);
      const double seconds = seconds_of([&] { step(); });
      kernels_.send_to_inner();
      if (round > 0 && seconds >= bench.profiled_step_seconds) continue;
      bench.profiled_step_seconds = seconds;
      bench.profile = timed.by_name();
      bench.profile_by_call = timed.by_call();
    }
  }

  TrainBenchOptions options_;
  Machine plain_;
  SwitchedKernels kernels_;
  PassTimes passes_;
  Machine observed_;
  std::vector<MicroBatch> batches_;
  std::optional<Mesh> mesh_;
  std::optional<Session> session_;
  std::int64_t consumed_ = 0;
};

}  // namespace

TrainBench bench_train(const Machine& machine, const TrainBenchOptions& options) {
  return TrainRun(machine, options)();
}

}  // namespace piton
