#include "parallel/stage_messages.h"

#include <gtest/gtest.h>

#include <set>

namespace piton {
namespace {

constexpr ScheduleKind kKinds[] = {
    ScheduleKind::kOneForwardOneBackward, ScheduleKind::kZeroBubbleH1, ScheduleKind::kInterleaved,
    ScheduleKind::kAllInAllOut,           ScheduleKind::kZeroBubbleV,  ScheduleKind::kDualPipeV};

// Of every schedule: both stages of each boundary have the micro-batches in the same order, so that
// messages without tags arrive in the order in which they are expected.
TEST(StageMessages, HaveALaneForEachBoundaryAndDirection) {
  for (const ScheduleKind kind : kKinds) {
    const bool chunked = kind == ScheduleKind::kInterleaved || kind == ScheduleKind::kAllInAllOut;
    for (int stages = 2; stages <= 4; ++stages) {
      const Schedule schedule =
          make_schedule({.kind = kind, .chunks = chunked ? 3 : 1}, stages, 4 * stages);
      std::set<MessageLane> wanted;
      for (int chunk = 0; chunk + 1 < schedule.chunks(); ++chunk) {
        const int from = schedule.stage_of_chunk[chunk];
        const int to = schedule.stage_of_chunk[chunk + 1];
        if (from == to) continue;
        wanted.insert({from, to, 2 * chunk});
        wanted.insert({to, from, 2 * chunk + 1});
      }
      const std::vector<MessageLane> lanes = StageMessages::lanes(schedule);
      EXPECT_EQ(std::set<MessageLane>(lanes.begin(), lanes.end()), wanted)
          << schedule.name << " of " << stages;
      for (const MessageLane& lane : lanes) {
        EXPECT_LT(lane.number, StageMessages::lane_count(schedule));
      }
    }
  }
}

TEST(StageMessages, HaveNoLaneWhereTheOrdersDiffer) {
  Schedule schedule = empty_schedule("own", {0, 1}, 2, 2);
  schedule.steps = {{{Pass::kForward, 0, 0}, {Pass::kForward, 1, 0}},
                    {{Pass::kForward, 1, 1}, {Pass::kForward, 0, 1}}};
  const std::vector<MessageLane> lanes = StageMessages::lanes(schedule);
  ASSERT_EQ(lanes.size(), 1U);  // backward, which has no steps
  EXPECT_EQ(lanes[0], (MessageLane{1, 0, 1}));
}

}  // namespace
}  // namespace piton
