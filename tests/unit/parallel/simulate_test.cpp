#include "parallel/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "parallel/pipeline_options.h"
#include "unit/parallel/equal_times.h"

namespace piton {
namespace {

using test::kEqual;
using test::kExact;
using testing::HasSubstr;

constexpr double kRounded = 0.0005 + kExact;  // bubbles that are printed as "18.8 %"

TEST(Simulate, OneForwardOneBackwardIdlesTheClosedForm) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      const Simulation result = simulate(one_forward_one_backward(p, m), {kEqual});
      EXPECT_NEAR(result.bubble, (p - 1.0) / m, kExact)
          << p << " stages, " << m << " micro-batches";
    }
  }
}

TEST(Simulate, OneForwardOneBackwardHoldsWhatItSays) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      const Simulation result = simulate(one_forward_one_backward(p, m), {kEqual});
      for (int r = 0; r < p; ++r) EXPECT_EQ(result.peak_activations[r], std::min(p - r, m));
    }
  }
}

TEST(Simulate, ZeroBubbleH1HoldsNoMoreThanTheFirstStageOf1F1B) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 32; ++m) {
      const Simulation plain = simulate(one_forward_one_backward(p, m), {kEqual});
      const Simulation split = simulate(zero_bubble_h1(p, m), {kEqual});
      const auto peak = [](const Simulation& s) {
        return *std::ranges::max_element(s.peak_activations);
      };
      EXPECT_LE(peak(split), peak(plain)) << p << " stages, " << m << " micro-batches";
      EXPECT_EQ(split.peak_activations[0], plain.peak_activations[0]);
    }
  }
}

// Qi et al., section 2.2: (p - 1) (F + B - W), for weight passes that are not the longest.
TEST(Simulate, ZeroBubbleH1IdlesTheClosedForm) {
  const StepTimes cases[] = {
      kEqual, {1, 1.2, 0.8, 0}, {1, 2, 0.5, 0}, {1, 1.3, 1, 0}, {2, 3, 1, 0}};
  for (const StepTimes& t : cases) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = p; m <= 32; ++m) {
        const Simulation result = simulate(zero_bubble_h1(p, m), {t});
        EXPECT_NEAR(result.time - result.ideal,
                    (p - 1) * (t.forward + t.backward_input - t.backward_weight), kExact)
            << p << " stages, " << m << " micro-batches";
      }
    }
  }
}

TEST(Simulate, ZeroBubbleH1IdlesAThirdOf1F1B) {
  for (int p = 2; p <= 8; ++p) {
    for (int m = p; m <= 32; ++m) {
      const double plain = simulate(one_forward_one_backward(p, m), {kEqual}).bubble;
      const double split = simulate(zero_bubble_h1(p, m), {kEqual}).bubble;
      EXPECT_NEAR(split / plain, 1.0 / 3.0, kExact);
    }
  }
}

// With fewer micro-batches than stages the first one's way through the pipe decides.
TEST(Simulate, ZeroBubbleH1IsNeverSlowerThan1F1B) {
  const StepTimes cases[] = {kEqual, {1, 1.2, 0.8, 0}, {1, 0.8, 1.1, 0}, {1, 1, 1, 0.25}};
  for (const StepTimes& t : cases) {
    for (int p = 1; p <= 8; ++p) {
      for (int m = 1; m <= 32; ++m) {
        EXPECT_LE(simulate(zero_bubble_h1(p, m), {t}).time,
                  simulate(one_forward_one_backward(p, m), {t}).time + kExact)
            << p << " stages, " << m << " micro-batches";
      }
    }
  }
  // One micro-batch: p forwards and p input backwards in a row, then one weight pass.
  EXPECT_NEAR(simulate(zero_bubble_h1(4, 1), {kEqual}).time, 4 + 4 + 1, kExact);
}

// AscendSpeed's presets for unequal micro-batches, passes in proportion to samples. Ideal times: a
// forward of one sample is 1, a backward 2.
TEST(Simulate, TakesTimesByMicroBatch) {
  const StepTimes sample{.forward = 1, .backward_input = 1, .backward_weight = 1};
  struct Case {
    const char* preset;
    int stages;
    double time, bubble;
    int count;
    double uniform_time, uniform_bubble;
  };
  for (const Case& one : {Case{"example-config-1", 4, 217, 0.130, 16, 228, 0.188},
                          Case{"example-config-2", 8, 352, 0.222, 24, 372, 0.292}}) {
    SCOPED_TRACE(one.preset);
    PipelineOptions options;
    options.micro_batches = {one.preset};
    const std::vector<std::int64_t> sizes = options.listed_sizes();
    ASSERT_EQ(static_cast<int>(sizes.size()), one.count);
    const Schedule schedule = one_forward_one_backward(one.stages, one.count);
    const Simulation preset = simulate(schedule, {sample}, sizes);
    EXPECT_NEAR(preset.time, one.time, kExact);
    EXPECT_NEAR(preset.bubble, one.bubble, kRounded);
    const std::vector<std::int64_t> fours(sizes.size(), 4);
    const Simulation uniform = simulate(schedule, {sample}, fours);
    EXPECT_NEAR(uniform.time, one.uniform_time, kExact);
    EXPECT_NEAR(uniform.bubble, one.uniform_bubble, kRounded);
    EXPECT_THROW(simulate(schedule, {sample}, {1, 2}), Error);
  }
  // A message takes the time of its micro-batch: 2 samples cross the boundary twice.
  const StepTimes slow{.forward = 1, .backward_input = 1, .backward_weight = 1, .message = 0.5};
  EXPECT_NEAR(simulate(one_forward_one_backward(2, 1), {slow}, {2}).time, 12 + 2, kExact);
}

TEST(Simulate, CountsMessagesBetweenStagesOnly) {
  const StepTimes slow{.forward = 1, .backward_input = 1, .backward_weight = 1, .message = 0.5};
  // One micro-batch crosses p - 1 boundaries forward and p - 1 backward.
  EXPECT_NEAR(simulate(one_forward_one_backward(4, 1), {slow}).time, 4 * 3 + 6 * 0.5, kExact);
  // Two chunks on one stage pass nothing.
  Schedule local{.name = "two chunks", .stages = 1, .micro_batches = 1, .stage_of_chunk = {0, 0}};
  local.steps = {{{Pass::kForward, 0, 0},
                  {Pass::kForward, 0, 1},
                  {Pass::kBackward, 0, 1},
                  {Pass::kBackward, 0, 0}}};
  const Simulation result = simulate(local, {slow});
  EXPECT_NEAR(result.time, 6, kExact);
  EXPECT_EQ(result.peak_activations[0], 2);
}

TEST(Simulate, TakesTimesByChunk) {
  const StepTimes half{.forward = 0.5, .backward_input = 0.5, .backward_weight = 0.5};
  const Simulation result = simulate(one_forward_one_backward(2, 1), {kEqual, half});
  EXPECT_NEAR(result.time, 3 + 1.5, kExact);
  EXPECT_NEAR(result.ideal, 3, kExact);
  EXPECT_NEAR(result.end[1].back(), 2.5, kExact);
  EXPECT_THROW(simulate(one_forward_one_backward(3, 1), {kEqual, half}), Error);
}

TEST(Simulate, NamesTheStepsOfADeadlock) {
  // Stage 0 needs the gradient of micro-batch 0 before it sends micro-batch 1; stage 1 needs
  // micro-batch 1 before it goes back with 0. Each list is valid by itself.
  Schedule schedule{.name = "crossed", .stages = 2, .micro_batches = 2, .stage_of_chunk = {0, 1}};
  schedule.steps = {{{Pass::kForward, 0, 0},
                     {Pass::kBackward, 0, 0},
                     {Pass::kForward, 1, 0},
                     {Pass::kBackward, 1, 0}},
                    {{Pass::kForward, 0, 1},
                     {Pass::kForward, 1, 1},
                     {Pass::kBackward, 0, 1},
                     {Pass::kBackward, 1, 1}}};
  ASSERT_NO_THROW(check(schedule));
  try {
    simulate(schedule, {kEqual});
    FAIL() << "the deadlock went unseen";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    EXPECT_STREQ(
        error.what(),
        "pipeline: schedule \"crossed\" cannot end (deadlock): stage 0, step 1: the backward of "
        "micro-batch 0 in chunk 0 waits for the input backward of micro-batch 0 in chunk 1 on "
        "stage 1; stage 1, step 1: the forward of micro-batch 1 in chunk 1 waits for the "
        "forward of micro-batch 1 in chunk 0 on stage 0");
  }
}

TEST(Simulate, RefusesABrokenSchedule) {
  Schedule schedule = zero_bubble_h1(2, 2);
  schedule.steps[1].erase(schedule.steps[1].begin());
  EXPECT_THROW(simulate(schedule, {kEqual}), Error);
}

}  // namespace
}  // namespace piton
