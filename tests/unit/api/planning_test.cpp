// Times of steps on devices and links that are not at hand, where formulas say what they must be.
#include "api/planning.h"

#include <gtest/gtest.h>

#include "api/engine.h"
#include "support/sampled.h"

namespace piton {
namespace {

constexpr double kAtOnce = 1e30;  // operations or bytes a second

class EstimatedTime : public testing::Test {
 protected:
  EstimatedTime() : engine_({}, log_) {}

  static PretrainOptions options(int tensor, int pipeline, std::int64_t batch) {
    PretrainOptions options;
    options.model.model = "llama-tiny";
    options.loop.train_iters = 1;
    options.loop.global_batch_size = batch;
    options.parallel.tensor = tensor;
    options.parallel.pipeline = pipeline;
    return options;
  }
  StepTime time(const RunPlan& plan, const PlannedSpeeds& speeds) {
    KnownTimes known;
    return estimate_time(plan, engine_.machine(), speeds, known);
  }
  // That a rank sends in a step.
  double sent(const RunPlan& plan) {
    const TrafficCounts traffic = estimate_layout(plan, engine_.machine())[0].traffic;
    return static_cast<double>(traffic.all_reduce_bytes + traffic.all_gather_bytes +
                               traffic.reduce_scatter_bytes);
  }

  SilentLog log_;
  Engine engine_;
};

TEST_F(EstimatedTime, IsThatOfTheBytesWhereWorkTakesNone) {
  const RunPlan plan = make_run_plan(options(2, 1, 2), 2, 0);
  const StepTime step = time(plan, {.device = DeviceRates{kAtOnce, kAtOnce},
                                    .link_bytes_per_second = 1e6,
                                    .host_link_bytes_per_second = 1e6,
                                    .ranks_of_host = 2});
  EXPECT_NEAR(step.waited, sent(plan) / 1e6, 1e-3 * step.waited);
  EXPECT_NEAR(step.seconds, step.waited, 1e-3 * step.seconds);
}

TEST_F(EstimatedTime, TakesTheLinksBetweenHostsWhereAGroupSpansThem) {
  const RunPlan plan = make_run_plan(options(2, 1, 2), 2, 0);
  PlannedSpeeds speeds{.device = DeviceRates{kAtOnce, kAtOnce},
                       .link_bytes_per_second = 1e9,
                       .host_link_bytes_per_second = 1e6,
                       .ranks_of_host = 2};
  const StepTime one_host = time(plan, speeds);
  speeds.ranks_of_host = 1;
  EXPECT_NEAR(time(plan, speeds).seconds / one_host.seconds, 1000, 10);
}

TEST_F(EstimatedTime, HalvesOnTwoDataRanksWithoutTheWorkOfAStep) {
  // Memory at once: only products take time, which an update has none of.
  const PlannedSpeeds speeds{.device = DeviceRates{1e9, kAtOnce}};
  const StepTime one = time(make_run_plan(options(1, 1, 8), 1, 0), speeds);
  const StepTime two = time(make_run_plan(options(1, 1, 8), 2, 0), speeds);
  EXPECT_GT(one.seconds, 0);
  EXPECT_NEAR(two.seconds, one.seconds / 2, 0.02 * one.seconds);
}

TEST_F(EstimatedTime, HidesSumsOfGradientsUnderLongWork) {
  const RunPlan plan = make_run_plan(options(1, 1, 4), 2, 0);
  const double bytes = sent(plan);
  const PlannedSpeeds no_links{.device = DeviceRates{1e9, 1e9}};
  const double work = time(plan, no_links).work;
  // All sums together take a tenth of the work.
  const PlannedSpeeds links{.device = DeviceRates{1e9, 1e9},
                            .link_bytes_per_second = bytes / (work / 10),
                            .host_link_bytes_per_second = bytes / (work / 10),
                            .ranks_of_host = 2};
  const StepTime step = time(plan, links);
  EXPECT_NEAR(step.work, work, 1e-6 * work);
  EXPECT_LT(step.waited, work / 10);
}

TEST_F(EstimatedTime, OfMeasuredCallsIsPositive) {
  const StepTime step = time(make_run_plan(options(1, 1, 1), 1, 0), {});
  EXPECT_GT(step.seconds, 0);
  EXPECT_EQ(step.waited, 0);
}

class EstimatedStep : public EstimatedTime {
 protected:
  // Of micro-batches of one sample.
  RankEstimate estimate(const PretrainOptions& layout, int ranks, std::int64_t micro_batches,
                        int rank = 0) {
    PretrainOptions options = layout;
    const std::int64_t replicas = ranks / (layout.parallel.tensor * layout.parallel.pipeline);
    options.loop.micro_batch_size = 1;
    options.loop.sequence = 16;
    options.loop.global_batch_size = micro_batches * replicas;
    return estimate_layout(make_run_plan(options, ranks, 0),
                           engine_.machine())[static_cast<std::size_t>(rank)];
  }
};

// What `few` and `more` micro-batches need, for `many`, since each has the same passes.
std::int64_t extended(std::int64_t at_few, std::int64_t at_more, std::int64_t few,
                      std::int64_t more, std::int64_t many) {
  return at_few + (at_more - at_few) / (more - few) * (many - few);
}

// Up to 64 micro-batches all are run.
TEST_F(EstimatedStep, OfManyMicroBatchesFollowsFromThoseOfFewExactly) {
  struct Case {
    const char* name;
    int ranks, tensor, pipeline, zero;
    PipelineOrder order;
  };
  constexpr auto kPlain = PipelineOrder::kOneForwardOneBackward;
  const std::vector<Case> cases{{"one process", 1, 1, 1, 0, kPlain},
                                {"ZeRO-3", 2, 1, 1, 3, kPlain},
                                {"TP 2 x PP 2, ZB-H1", 4, 2, 2, 0, PipelineOrder::kZeroBubbleH1},
                                {"PP 2, DualPipe-V", 2, 1, 2, 0, PipelineOrder::kDualPipeV}};
  for (const Case& one : test::sampled(cases, 2, 1)) {
    SCOPED_TRACE(one.name);
    PretrainOptions layout = options(one.tensor, one.pipeline, 1);
    layout.parallel.zero_stage = one.zero;
    layout.parallel.schedule.schedule = one.order;
    const int last = one.ranks - 1;
    const RankEstimate few = estimate(layout, one.ranks, 40, last);
    const RankEstimate more = estimate(layout, one.ranks, 60, last);
    const RankEstimate many = estimate(layout, one.ranks, 1000, last);
    const auto expect = [&](const auto& field) {
      EXPECT_EQ(field(many), extended(field(few), field(more), 40, 60, 1000));
    };
    expect([](const RankEstimate& x) { return x.memory.peak_total_bytes; });
    for (const std::size_t kind : {0, 1, 2, 3, 4, 5})
      expect([kind](const RankEstimate& x) { return x.memory.peak_bytes[kind]; });
    expect([](const RankEstimate& x) { return x.traffic.all_reduce_bytes; });
    expect([](const RankEstimate& x) { return x.traffic.all_gather_bytes; });
    expect([](const RankEstimate& x) { return x.traffic.reduce_scatter_bytes; });
    expect([](const RankEstimate& x) { return x.traffic.point_to_point_bytes; });
    expect([](const RankEstimate& x) { return x.traffic.collectives; });
  }
}

TEST_F(EstimatedStep, OfManyMicroBatchesIsNoMoreWorkThanOfHundreds) {
  const PretrainOptions layout = options(1, 2, 1);
  const std::int64_t requests = estimate(layout, 2, 200).memory.slots;
  EXPECT_GT(requests, 0);
  EXPECT_EQ(estimate(layout, 2, 65536).memory.slots, requests);
}

}  // namespace
}  // namespace piton
