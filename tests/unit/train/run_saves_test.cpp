// The rules of saving, with files that are not written.
#include "train/run_saves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "support/errors.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using test::EventSink;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// Records the calls; fails as it is asked to.
class FakeWriter final : public CheckpointWriter {
 public:
  void check_data() override {
    if (data_has_changed) throw Error(Fault::kData, "corpus: has changed");
  }
  void check_room() override { calls.emplace_back("room"); }
  bool prepare_copy() override {
    calls.emplace_back("copy");
    return has_memory;
  }
  std::filesystem::path save(TrainState& state) override {
    calls.push_back(fmt::format("save {}", state.iteration));
    if (fault) throw Error(*fault, "no space");
    return fmt::format("iter_{}", state.iteration);
  }
  bool start_save(TrainState& state) override {
    calls.push_back(fmt::format("start {}", state.iteration));
    if (!has_memory) return false;
    background = {.iteration = state.iteration,
                  .folder = "background",
                  .seconds = 5,
                  .copy_seconds = 1,
                  .waited_seconds = 0};
    return true;
  }
  std::optional<FinishedSave> take_finished(bool wait, Communicator&) override {
    if (!background || !(wait || is_over)) return std::nullopt;
    if (rank_is_lost) throw std::runtime_error("rank 1 is lost");
    if (fault) background->error = Error(*fault, "no space");
    if (wait && !is_over) background->waited_seconds = 3;
    return std::exchange(background, std::nullopt);
  }
  bool in_background() const override { return background.has_value(); }
  std::int64_t copy_bytes() const override { return 2'500'000; }

  std::vector<std::string> calls;
  std::optional<FinishedSave> background;
  bool data_has_changed = false;
  bool has_memory = true;
  bool is_over = false;  // the save in the background
  bool rank_is_lost = false;
  std::optional<Fault> fault;  // of saves
};

class RunSavesTest : public testing::Test {
 protected:
  RunSaves saves(const LoopOptions& loop, bool in_background = false,
                 std::optional<std::int64_t> saved = {}) {
    return RunSaves({.loop = loop, .train_iters = 10, .in_background = in_background},
                    {.writer = writer_, .state = state_, .everyone = *everyone_, .sinks = sinks_},
                    saved);
  }
  static LoopOptions every(std::int64_t interval) {
    LoopOptions loop;
    loop.save = "run";
    loop.save_interval = interval;
    return loop;
  }

  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
  std::unique_ptr<Communicator> everyone_ = make_group_of_all(*world_, "run");
  EventSink sink_;
  RunSinks sinks_{{&sink_}, /*leads=*/true};
  FakeWriter writer_;
  TrainState state_;
};

TEST_F(RunSavesTest, AreDueAtEachIntervalAndAtTheEnd) {
  RunSaves saves = this->saves(every(4));
  saves.prepare();
  std::vector<std::int64_t> due;
  for (state_.iteration = 1; state_.iteration <= 10; ++state_.iteration) {
    saves.before_step();
    saves.after_step();
    if (!saves.due()) continue;
    due.push_back(state_.iteration);
    saves.save_if_possible();
    EXPECT_TRUE(saves.is_saved());
    EXPECT_FALSE(saves.due()) << "once";
  }
  EXPECT_THAT(due, ElementsAre(4, 8, 10));
  EXPECT_THAT(writer_.calls, ElementsAre("room", "save 4", "save 8", "save 10"));
  EXPECT_THAT(sink_.events, ElementsAre("save 4", "save 8", "save 10"));
  EXPECT_EQ(sink_.saves[0].folder, "iter_4");
  EXPECT_EQ(sink_.saves[0].blocked_seconds, sink_.saves[0].seconds);
}

TEST_F(RunSavesTest, AreDueOnceTheMinutesAreOver) {
  LoopOptions loop = every(0);
  loop.save_interval_minutes = 1e-9;
  RunSaves often = saves(loop);
  often.prepare();
  state_.iteration = 3;
  EXPECT_FALSE(often.due()) << "the clock is read after a step";
  often.after_step();
  EXPECT_TRUE(often.due());
  often.save_if_possible();
  state_.iteration = 4;
  EXPECT_FALSE(often.due());
  loop.save_interval_minutes = 1000;
  RunSaves seldom = saves(loop);
  seldom.prepare();
  seldom.after_step();
  EXPECT_FALSE(seldom.due());
}

TEST_F(RunSavesTest, KnowTheCheckpointThatTheRunResumed) {
  state_.iteration = 10;
  RunSaves resumed = saves(every(5), false, 10);
  EXPECT_TRUE(resumed.is_saved());
  EXPECT_FALSE(resumed.due());
  EXPECT_TRUE(saves(every(5)).due()) << "loaded from elsewhere";
  EXPECT_FALSE(saves(every(5)).is_saved());
}

TEST_F(RunSavesTest, InTheBackgroundAreReportedWhenTheyAreOver) {
  RunSaves saves = this->saves(every(2), true);
  saves.prepare();
  EXPECT_THAT(sink_.messages,
              ElementsAre("saves continue in the background, from a copy of the state "
                          "(2.5 MB on rank 0)"));
  state_.iteration = 2;
  saves.save_if_possible();
  EXPECT_THAT(writer_.calls, ElementsAre("room", "copy", "start 2"));
  EXPECT_FALSE(saves.due()) << "it is under way";
  EXPECT_FALSE(saves.is_saved()) << "it may fail yet";
  saves.before_step();
  EXPECT_THAT(sink_.saves, IsEmpty());
  writer_.is_over = true;
  state_.iteration = 3;
  saves.before_step();
  ASSERT_EQ(sink_.saves.size(), 1);
  EXPECT_EQ(sink_.saves[0].iteration, 2);
  EXPECT_TRUE(sink_.saves[0].in_background);
  EXPECT_EQ(sink_.saves[0].seconds, 5);
  EXPECT_EQ(sink_.saves[0].blocked_seconds, 1) << "the copy alone";
  EXPECT_FALSE(saves.is_saved()) << "of an earlier state";
  state_.iteration = 2;
  EXPECT_TRUE(saves.is_saved());
}

TEST_F(RunSavesTest, WaitForTheOneBefore) {
  RunSaves saves = this->saves(every(2), true);
  saves.prepare();
  for (const std::int64_t iteration : {2, 4}) {
    state_.iteration = iteration;
    saves.save_if_possible();
  }
  EXPECT_THAT(sink_.events, ElementsAre("save 2"));
  EXPECT_EQ(sink_.saves[0].blocked_seconds, 4) << "the copy, and the wait";
  EXPECT_THAT(sink_.messages,
              Contains("training waited 3.0 s for the end of the save of iteration 2"));
  saves.finish();
  EXPECT_THAT(sink_.events, ElementsAre("save 2", "save 4"));
  EXPECT_TRUE(saves.is_saved());
}

TEST_F(RunSavesTest, HoldUpTrainingWhereThereIsNoMemoryForACopy) {
  const auto warning = Contains(HasSubstr("warning: there is no memory for a copy of the state"));
  RunSaves saves = this->saves(every(2), true);
  saves.prepare();
  EXPECT_THAT(sink_.messages, Not(warning));
  writer_.has_memory = false;
  state_.iteration = 2;
  saves.save_if_possible();
  EXPECT_THAT(sink_.messages, warning);
  EXPECT_TRUE(saves.is_saved());
  state_.iteration = 4;
  saves.save_if_possible();
  EXPECT_THAT(writer_.calls, ElementsAre("room", "copy", "start 2", "save 2", "save 4"));
}

TEST_F(RunSavesTest, ThatFailAreWarningsBetweenStepsAndNameTheNext) {
  RunSaves saves = this->saves(every(4));
  saves.prepare();
  writer_.fault = Fault::kData;
  state_.iteration = 4;
  saves.save_if_possible();
  EXPECT_FALSE(saves.is_saved());
  EXPECT_THAT(
      sink_.messages,
      ElementsAre("warning: iteration 4 is not saved: no space; the run continues and saves "
                  "again at iteration 8"));
  state_.iteration = 10;
  saves.save_if_possible();
  EXPECT_THAT(sink_.messages, Contains("warning: iteration 10 is not saved: no space"))
      << "there is no next one";
  EXPECT_THAT(message_of(Fault::kData, [&] { saves.save(); }), "no space")
      << "the program asked for it";
  writer_.fault = Fault::kMemory;
  EXPECT_THAT(message_of(Fault::kMemory, [&] { saves.save_if_possible(); }), "no space")
      << "not of the disk";
  LoopOptions by_clock = every(0);
  by_clock.save_interval_minutes = 30;
  writer_.fault = Fault::kData;
  state_.iteration = 5;
  this->saves(by_clock).save_if_possible();
  EXPECT_THAT(sink_.messages, Contains(HasSubstr("saves again in 30 minutes")));
}

TEST_F(RunSavesTest, InTheBackgroundThatFailAreNotTheStateInTheFolder) {
  RunSaves saves = this->saves(every(2), true);
  saves.prepare();
  state_.iteration = 2;
  saves.save_if_possible();
  writer_.fault = Fault::kData;
  saves.finish();
  EXPECT_FALSE(saves.is_saved());
  EXPECT_TRUE(saves.due()) << "a save may be tried again";
  EXPECT_THAT(sink_.saves, IsEmpty());
  EXPECT_THAT(sink_.messages, Contains(HasSubstr("iteration 2 is not saved: no space")));
}

TEST_F(RunSavesTest, EndTheRunIfItsDataHasChanged) {
  RunSaves saves = this->saves(every(2));
  writer_.data_has_changed = true;
  state_.iteration = 2;
  EXPECT_EQ(message_of(Fault::kData, [&] { saves.save_if_possible(); }), "corpus: has changed");
  EXPECT_THAT(writer_.calls, IsEmpty());
}

TEST_F(RunSavesTest, NeedAFolder) {
  RunSaves saves = this->saves({});
  saves.prepare();
  EXPECT_THAT(sink_.messages,
              ElementsAre("warning: no --save is given: nothing of this run will be kept"));
  state_.iteration = 10;
  EXPECT_FALSE(saves.due());
  const auto wanted = HasSubstr("give --save DIR");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { saves.save(); }), wanted);
  EXPECT_THAT(message_of(Fault::kUsage, [&] { saves.save_if_possible(); }), wanted);
  EXPECT_THAT(writer_.calls, IsEmpty());
}

TEST_F(RunSavesTest, AtTheEndOfARunNeedNoRoomBefore) {
  state_.iteration = 10;
  LoopOptions loop = every(2);
  loop.no_save_optim = true;
  saves(loop, true).prepare();
  EXPECT_THAT(writer_.calls, IsEmpty());
  EXPECT_THAT(sink_.messages, ElementsAre(HasSubstr("checkpoints hold the weights alone")));
}

TEST_F(RunSavesTest, AreCalledRareByTheTimeThatIsLeft) {
  const auto warned = [&](LoopOptions loop, double seconds_per_step, double since = 0) {
    sink_.messages.clear();
    saves(loop).warn_if_rare(seconds_per_step, since);
    return !sink_.messages.empty();
  };
  state_.iteration = 2;
  EXPECT_TRUE(warned(every(0), 1000)) << "8 steps are more than two hours";
  EXPECT_FALSE(warned(every(0), 400));
  EXPECT_FALSE(warned({}, 1000)) << "that nothing is kept was said";
  LoopOptions ends = every(0);
  ends.exit_interval = 4;
  EXPECT_FALSE(warned(ends, 1000)) << "it ends after two more";
  ends = every(0);
  ends.exit_duration_minutes = 90;
  EXPECT_TRUE(warned(ends, 1000, 600)) << "80 minutes are left";
  EXPECT_FALSE(warned(ends, 1000, 3600)) << "30 minutes are left";
  LoopOptions by_clock = every(0);
  by_clock.save_interval_minutes = 30;
  EXPECT_FALSE(warned(by_clock, 1000));
}

TEST_F(RunSavesTest, InTheBackgroundEndAfterAFailureOfTheRun) {
  RunSaves good = saves(every(2), true);
  state_.iteration = 2;
  good.save_if_possible();
  good.end_after_failure();
  EXPECT_THAT(sink_.events, ElementsAre("save 2"));
  RunSaves lost = saves(every(2), true);
  lost.save_if_possible();
  writer_.rank_is_lost = true;
  EXPECT_NO_THROW(lost.end_after_failure());
  EXPECT_THAT(sink_.events, ElementsAre("save 2"));
}

}  // namespace
}  // namespace piton
