#include "parallel/chunked_schedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "parallel/simulate.h"
#include "support/errors.h"
#include "unit/parallel/equal_times.h"

namespace piton {
namespace {

using test::kEqual;
using test::kExact;
using testing::HasSubstr;

std::string order(const std::vector<Step>& steps) {
  std::string text;
  for (const Step& step : steps) {
    const char letter = step.pass == Pass::kForward         ? 'F'
                        : step.pass == Pass::kBackward      ? 'B'
                        : step.pass == Pass::kBackwardInput ? 'I'
                                                            : 'W';
    text += fmt::format(" {}{}.{}", letter, step.micro_batch, step.chunk);
  }
  return text;
}

// tests/golden/pipeline_orders.txt is by Megatron-core and PyTorch.
TEST(ChunkedSchedules, HaveTheOrdersOfMegatronAndPyTorch) {
  std::ifstream file(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/pipeline_orders.txt");
  ASSERT_TRUE(file) << "the golden file is missing";
  int lines = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string name;
    int stages = 0, chunks = 0, micro_batches = 0, group = 0, stage = 0;
    words >> name >> stages >> chunks >> micro_batches >> group >> stage;
    std::string rest;
    std::getline(words, rest);
    SCOPED_TRACE(
        fmt::format("{}: stage {} of {}, {} micro-batches", name, stage, stages, micro_batches));
    const Schedule schedule = name == "interleaved"
                                  ? interleaved(stages, chunks, micro_batches, group)
                              : name == "zb-v" ? zero_bubble_v(stages, micro_batches)
                                               : dual_pipe_v(stages, micro_batches);
    EXPECT_EQ(order(schedule.steps[stage]), rest);
    ++lines;
  }
  EXPECT_GT(lines, 50);
}

TEST(ChunkedSchedules, PlaceChunksRoundRobinOrInAV) {
  EXPECT_EQ(round_robin(3, 2), (std::vector<int>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(v_stages(3), (std::vector<int>{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(stages_of_chunks({ScheduleKind::kZeroBubbleV}, 2), (std::vector<int>{0, 1, 1, 0}));
  EXPECT_EQ(stages_of_chunks({ScheduleKind::kZeroBubbleH1}, 2), (std::vector<int>{0, 1}));
  EXPECT_EQ(stages_of_chunks({.kind = ScheduleKind::kInterleaved, .chunks = 2}, 2),
            (std::vector<int>{0, 1, 0, 1}));
}

TEST(Interleaved, IdlesTheClosedFormAndHoldsWhatItSays) {
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (int m = p; m <= 6 * p; m += p) {
        SCOPED_TRACE(fmt::format("{} stages of {} chunks, {} micro-batches", p, v, m));
        const Simulation result = simulate(interleaved(p, v, m, p), {kEqual});
        EXPECT_NEAR(result.bubble, (p - 1.0) / (v * m), kExact);
        for (int r = 0; r < p; ++r) {
          EXPECT_EQ(result.peak_activations[r], std::min(2 * (p - r - 1) + (v - 1) * p + 1, v * m));
        }
      }
    }
  }
}

// Groups of any size from p on, the last one at least p: no deadlock, and no more is held.
TEST(Interleaved, TakesLargerGroupsAndARestOfAtLeastTheStages) {
  for (int p = 2; p <= 5; ++p) {
    for (int group = p; group <= 2 * p; ++group) {
      for (int m = group; m <= 4 * group; ++m) {
        SCOPED_TRACE(fmt::format("{} stages, groups of {}, {} micro-batches", p, group, m));
        if (m % group != 0 && m % group < p) {
          EXPECT_THAT(message_of(Fault::kUsage, [&] { interleaved(p, 2, m, group); }),
                      HasSubstr("--microbatch-group-size-per-virtual-pipeline-stage"));
          continue;
        }
        const Simulation result = simulate(interleaved(p, 2, m, group), {kEqual});
        EXPECT_LE(result.peak_activations[0], 2 * (p - 1) + group + 1);
      }
    }
  }
  EXPECT_THAT(message_of(Fault::kUsage, [&] { interleaved(4, 2, 6, 4); }),
              HasSubstr("got 6 micro-batches a step on 4 stages"));
  EXPECT_THROW(interleaved(4, 2, 2, 4), Error);
  EXPECT_THROW(interleaved(4, 0, 4, 4), Error);
}

TEST(AllInAllOut, RunsEachChunkForAllMicroBatches) {
  EXPECT_EQ(order(all_in_all_out(2, 2, 2).steps[1]), " F0.1 F1.1 F0.3 F1.3 B0.3 B1.3 B0.1 B1.1");
  for (int p = 1; p <= 6; ++p) {
    for (int v = 1; v <= 4; ++v) {
      for (int m = p; m <= 6 * p; m += p) {
        SCOPED_TRACE(fmt::format("{} stages of {} chunks, {} micro-batches", p, v, m));
        const Simulation result = simulate(all_in_all_out(p, v, m), {kEqual});
        EXPECT_NEAR(result.bubble, (p - 1.0) / (v * m), kExact);
        EXPECT_EQ(result.peak_activations[0], v * m);
      }
    }
  }
  EXPECT_THAT(message_of(Fault::kUsage, [&] { all_in_all_out(4, 2, 6); }),
              HasSubstr("--foldx-mode aiao: got 6 micro-batches a step on 4 stages"));
}

TEST(ZeroBubbleV, HasNoIdleTimeWithinAStageAtTheMemoryOf1F1B) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 4 * p; ++m) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", p, m));
      const Simulation result = simulate(zero_bubble_v(p, m), {kEqual});
      EXPECT_LE(std::ranges::max(result.peak_activations), 2 * p);
      if (m < 2 * p - 1) continue;
      EXPECT_EQ(result.inner_bubble, 0);
      EXPECT_NEAR(result.time, 6 * m + p - 1, kExact);
    }
  }
}

TEST(DualPipeV, IdlesAndHoldsWhatItSays) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 2 * p; m <= 4 * p + 3; ++m) {
      SCOPED_TRACE(fmt::format("{} stages, {} micro-batches", p, m));
      const Simulation result = simulate(dual_pipe_v(p, m), {kEqual});
      EXPECT_NEAR(result.bubble, (p - 1.0) / (6 * m), kExact);
      EXPECT_LE(std::ranges::max(result.peak_activations), 2 * p + 1);
    }
  }
  EXPECT_THAT(message_of(Fault::kUsage, [&] { dual_pipe_v(4, 7); }), HasSubstr("at least 8"));
}

TEST(MakeSchedule, ChecksMicroBatchesBeforeAnythingElse) {
  const ScheduleSettings settings[] = {
      {.kind = ScheduleKind::kInterleaved, .chunks = 2},
      {.kind = ScheduleKind::kInterleaved, .chunks = 2, .group = 5},
      {.kind = ScheduleKind::kAllInAllOut, .chunks = 2},
      {ScheduleKind::kZeroBubbleV},
      {ScheduleKind::kDualPipeV}};
  for (const ScheduleSettings& one : settings) {
    for (int m = 1; m <= 20; ++m) {
      std::string checked, made;
      try {
        check_micro_batches(one, 3, m);
      } catch (const Error& error) {
        checked = error.what();
      }
      try {
        const Schedule schedule = make_schedule(one, 3, m);
        EXPECT_EQ(schedule.stage_of_chunk, stages_of_chunks(one, 3));
        EXPECT_NO_THROW(check(schedule));
      } catch (const Error& error) {
        made = error.what();
      }
      EXPECT_EQ(checked, made) << m << " micro-batches";
    }
  }
}

}  // namespace
}  // namespace piton
