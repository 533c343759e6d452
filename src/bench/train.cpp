#include "bench/train.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "api/planning.h"
#include "bench/products.h"
#include "bench/switched_kernels.h"
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
        observed_{.world = machine.world,
                  .device = machine.device,
                  .kernels = kernels_,
                  .arena = machine.arena,
                  .stream = machine.stream,
                  .threads = machine.threads,
                  .log = machine.log},
        batches_(random_batches(options)) {}

  TrainBench operator()() {
    TrainBench bench;
    const double tokens = static_cast<double>(options_.plan.micro_batch *
                                              options_.plan.micro_batches * options_.plan.sequence);
    bench.tokens = tokens * options_.plan.mesh[Axis::kData];
    // The ranks of one replica share the work on its tokens.
    const int share = options_.plan.mesh.ranks() / options_.plan.mesh[Axis::kData];
    bench.flops = 3 * options_.plan.forward_flops_per_token() * tokens / share;
    const MemoryCounts planned = MachinePlanner(plain_).plan_memory(options_.plan);
    bench.planned_bytes = planned.peak_total_bytes;
    check_memory(plain_, planned, *make_group_of_all(plain_.world, "bench"));

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
    PeakSamples peak(plain_, options_.plan.session.model.dtype);
    for (int round = 0; round < options_.rounds; ++round) {
      peak.sample();
      bench.step.seconds.push_back(seconds_of([&] { step(); }));
      products.sample(plain_);
    }
    bench.peak = peak.flops_per_second();
    bench.products = products.figures();
    bench.floor_seconds = products.seconds();
    if (options_.profile) profile(bench);
    return bench;
  }

 private:
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
