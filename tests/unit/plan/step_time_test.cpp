// How times of stages become that of a step, for times that are made up.
#include "plan/step_time.h"

#include <gtest/gtest.h>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"
#include "model/families.h"

namespace piton {
namespace {

RunPlan plan_of(int stages, int micro_batches) {
  RunPlan plan;
  plan.mesh[Axis::kPipeline] = stages;
  plan.session.model = preset("llama-tiny");
  plan.micro_batch = 2;
  plan.micro_batches = plan.session.micro_batches = micro_batches;
  return plan;
}

// 10 seconds of work and 1 of waiting a step, and for each micro-batch 3 and 1 more; a stage takes
// `slower` times as long as the one before.
TimeRank made_up(int slower) {
  return [slower](const RunPlan& plan, int rank) {
    const double factor = rank == 0 ? 1 : slower;
    return RankSeconds{.work = factor * (10 + 3 * plan.micro_batches),
                       .waited = factor * (1 + plan.micro_batches)};
  };
}

TEST(StepTime, IsThatOfAllMicroBatchesOnOneStage) {
  for (const int micro_batches : {1, 2, 3, 50}) {
    const StepTime time = estimate_step_time(plan_of(1, micro_batches), made_up(1));
    EXPECT_NEAR(time.seconds, 11 + 4 * micro_batches, 1e-9) << micro_batches;
    EXPECT_NEAR(time.work, 10 + 3 * micro_batches, 1e-9);
    EXPECT_NEAR(time.waited, 1 + micro_batches, 1e-9);
    EXPECT_EQ(time.idle, 0);
  }
}

TEST(StepTime, HasTheBubbleOfThePipeline) {
  // (M + p - 1) passes of 4 seconds.
  const StepTime equal = estimate_step_time(plan_of(2, 8), made_up(1));
  EXPECT_NEAR(equal.seconds, 11 + 4 * (8 + 1), 1e-9);
  EXPECT_NEAR(equal.idle, 4, 1e-9);
  // The second stage is the busiest one; it waits for the first forward pass (a third of 4 seconds)
  // and the first stage ends after it (two thirds).
  const StepTime unequal = estimate_step_time(plan_of(2, 8), made_up(2));
  EXPECT_NEAR(unequal.seconds, 22 + 8 * 8 + 4, 1e-9);
  EXPECT_NEAR(unequal.idle, 4, 1e-9);
}

TEST(StepTime, CountsUnequalMicroBatchesBySamples) {
  RunPlan plan = plan_of(1, 3);
  plan.micro_batch_sizes = {1, 2, 3};
  const StepTime time = estimate_step_time(
      plan, [](const RunPlan&, int) { return RankSeconds{.work = 12, .waited = 3}; });
  EXPECT_NEAR(time.seconds, 15, 1e-9);
}

TEST(StepTime, TakesTheLongerOfOperationsAndBytes) {
  const KernelCall call = Add{.y = host_tensor(DType::kF32, {100}),
                              .a = host_tensor(DType::kF32, {100}),
                              .b = host_tensor(DType::kF32, {100})};
  EXPECT_DOUBLE_EQ(seconds_at({.flops_per_second = 1e30, .bytes_per_second = 1e3}, call), 1.2);
  const KernelCall product = LinearForward{
      .y = host_tensor(DType::kF32, {2, 4}),
      .x = host_tensor(DType::kF32, {2, 8}),
      .weight = {
          .tensor = host_tensor(DType::kF32, {4, 8}), .out = 4, .in = 8, .dtype = DType::kF32}};
  EXPECT_DOUBLE_EQ(seconds_at({.flops_per_second = 64, .bytes_per_second = 1e30}, product), 2);
}

TEST(TimedCalls, AskOnceForCallsThatAreAlike) {
  const auto kernels = make_reference_kernels();
  std::map<std::string, double> known;
  int asked = 0;
  double now = 0;
  TimedCalls timed(
      *kernels, known, [&](const KernelCall&) { return ++asked, 0.5; },
      [&](double more) { now += more; });
  HostDevice device;
  const auto stream = device.make_stream();
  const auto add = [&](std::int64_t n) {
    const Tensor zeros = host_tensor(DType::kF32, {n});
    timed.run(Add{.y = host_tensor(DType::kF32, {n}), .a = zeros, .b = zeros}, *stream);
  };
  add(4);
  add(4);
  add(5);
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(known.size(), 2U);
  EXPECT_DOUBLE_EQ(now, 1.5);
  EXPECT_DOUBLE_EQ(timed.work_seconds(), 1.5);
}

}  // namespace
}  // namespace piton
