#include "parallel/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"

namespace piton {
namespace {

using testing::HasSubstr;

std::string refusal(const Schedule& schedule) {
  try {
    check(schedule);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kUsage);
    return error.what();
  }
  return "accepted";
}

// Every (chunk, micro-batch) exactly once a pass, counted here without check().
void expect_complete(const Schedule& schedule, bool split) {
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const auto& steps = schedule.steps[stage];
    const std::size_t passes = split ? 3 : 2;
    ASSERT_EQ(steps.size(), passes * schedule.micro_batches);
    for (int m = 0; m < schedule.micro_batches; ++m) {
      const auto at = [&](Pass pass) {
        const auto found = std::find(steps.begin(), steps.end(), Step{pass, m, stage});
        EXPECT_NE(found, steps.end()) << name(pass) << " " << m << " on stage " << stage;
        return found - steps.begin();
      };
      if (split) {
        EXPECT_LT(at(Pass::kForward), at(Pass::kBackwardInput));
        EXPECT_LT(at(Pass::kBackwardInput), at(Pass::kBackwardWeight));
      } else {
        EXPECT_LT(at(Pass::kForward), at(Pass::kBackward));
      }
    }
  }
}

TEST(Schedule, IsCompleteForEveryNumberOfStagesAndMicroBatches) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
      SCOPED_TRACE(testing::Message()
                   << stages << " stages, " << micro_batches << " micro-batches");
      const Schedule plain = one_forward_one_backward(stages, micro_batches);
      const Schedule split = zero_bubble_h1(stages, micro_batches);
      EXPECT_NO_THROW(check(plain));
      EXPECT_NO_THROW(check(split));
      expect_complete(plain, false);
      expect_complete(split, true);
    }
  }
}

// The second of 4 stages.
TEST(Schedule, OneForwardOneBackwardWarmsUpThenAlternatesThenDrains) {
  const Schedule schedule = one_forward_one_backward(4, 5);
  std::string order;
  for (const Step& step : schedule.steps[1]) {
    order += step.pass == Pass::kForward ? 'F' : 'B';
    order += static_cast<char>('0' + step.micro_batch);
  }
  EXPECT_EQ(order, "F0F1F2B0F3B1F4B2B3B4");
}

// 4 stages: the first does each weight job at once, the last three micro-batches later.
TEST(Schedule, ZeroBubbleH1LetsWeightJobsTrailByTheStage) {
  const Schedule schedule = zero_bubble_h1(4, 8);
  const auto order = [&](int stage) {
    std::string text;
    for (const Step& step : schedule.steps[stage]) {
      text += step.pass == Pass::kForward ? 'F' : step.pass == Pass::kBackwardInput ? 'B' : 'W';
      text += static_cast<char>('1' + step.micro_batch);
    }
    return text;
  };
  EXPECT_EQ(order(0), "F1F2F3F4B1W1F5B2W2F6B3W3F7B4W4F8B5W5B6W6B7W7B8W8");
  EXPECT_EQ(order(3), "F1B1F2B2F3B3F4B4W1F5B5W2F6B6W3F7B7W4F8B8W5W6W7W8");
}

TEST(Schedule, OneStageRunsForwardAndBackwardInTurn) {
  const Schedule schedule = one_forward_one_backward(1, 2);
  const std::vector<Step> want = {{Pass::kForward, 0, 0},
                                  {Pass::kBackward, 0, 0},
                                  {Pass::kForward, 1, 0},
                                  {Pass::kBackward, 1, 0}};
  EXPECT_EQ(schedule.steps[0], want);
}

TEST(Schedule, ThatRepeatsAStepIsRefused) {
  Schedule schedule = one_forward_one_backward(2, 3);
  schedule.steps[1].push_back({Pass::kBackward, 1, 1});
  EXPECT_EQ(
      refusal(schedule),
      "pipeline: schedule \"1f1b\" is not valid: stage 1 has the backward of micro-batch 1 in "
      "chunk 1 twice");
}

TEST(Schedule, ThatForgetsAStepIsRefused) {
  Schedule schedule = zero_bubble_h1(2, 3);
  schedule.steps[0].pop_back();
  EXPECT_EQ(
      refusal(schedule),
      "pipeline: schedule \"zb-h1\" is not valid: the weight backward of micro-batch 2 in chunk 0 "
      "is missing");
}

TEST(Schedule, ThatGoesBackBeforeItWentForwardIsRefused) {
  Schedule schedule = one_forward_one_backward(2, 2);
  std::swap(schedule.steps[1][0], schedule.steps[1][1]);
  EXPECT_THAT(refusal(schedule), HasSubstr("before its forward"));
}

TEST(Schedule, ThatRunsWeightJobsBeforeTheyExistIsRefused) {
  Schedule schedule = zero_bubble_h1(1, 1);
  std::swap(schedule.steps[0][1], schedule.steps[0][2]);
  EXPECT_THAT(refusal(schedule), HasSubstr("before its input backward"));
}

TEST(Schedule, ThatMixesWholeAndSplitBackwardIsRefused) {
  Schedule schedule = one_forward_one_backward(1, 1);
  schedule.steps[0].push_back({Pass::kBackwardWeight, 0, 0});
  EXPECT_THAT(refusal(schedule), HasSubstr("twice"));
}

TEST(Schedule, ThatRunsAChunkOnAForeignStageIsRefused) {
  Schedule schedule = one_forward_one_backward(2, 1);
  schedule.steps[0].push_back({Pass::kForward, 0, 1});
  EXPECT_THAT(refusal(schedule), HasSubstr("which is on stage 1"));
}

TEST(Schedule, OutsideItsMicroBatchesIsRefused) {
  Schedule schedule = one_forward_one_backward(1, 1);
  schedule.steps[0].push_back({Pass::kForward, 1, 0});
  EXPECT_THAT(refusal(schedule), HasSubstr("there are 1 chunks and 1 micro-batches"));
}

TEST(Schedule, NeedsAStageAndAMicroBatch) {
  EXPECT_THROW(one_forward_one_backward(0, 4), Error);
  EXPECT_THROW(zero_bubble_h1(4, 0), Error);
}

}  // namespace
}  // namespace piton
