// --fault: its texts, and what each fault does to a run of one rank.
#include "train/run_faults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using testing::HasSubstr;

TEST(FaultText, NamesRankStepAndWhatElseThereIs) {
  const PlannedFault kill = parse_fault("kill:3:12");
  EXPECT_EQ(kill.kind, FaultKind::kKill);
  EXPECT_EQ(kill.rank, 3);
  EXPECT_EQ(kill.step, 12);
  EXPECT_EQ(parse_fault("delay:0:2:1.5").seconds, 1.5);
  const PlannedFault drop = parse_fault("drop:4:tensor:all-reduce:7");
  EXPECT_EQ(drop.kind, FaultKind::kDrop);
  EXPECT_EQ(drop.step, 4);
  EXPECT_EQ(drop.collective, (CollectiveName{"tensor", "all-reduce", 7}));
}

TEST(FaultText, IsRefusedIfItIsNone) {
  for (const char* text :
       {"", "burn:0:1", "kill", "kill:0", "kill:0:1:2", "kill:-1:1", "kill:0:0", "kill:x:1",
        "nan:0:1x", "delay:0:1", "delay:0:1:-2", "drop:1:tensor", "drop:1:tensor:all-reduce:-1"}) {
    EXPECT_THAT(message_of(Fault::kUsage, [&] { parse_fault(text); }),
                HasSubstr("--fault: got " + std::string(text) + ", wanted kill:RANK:STEP"))
        << text;
  }
}

TEST(FaultOption, IsThereInBuildsWithFaultInjectionAlone) {
  PretrainOptions options;
  OptionSet set;
  options.add_to(set);
  if constexpr (kFaultInjection) {
    set.parse({"--fault", "kill:0:1", "nan:1:2"});
    EXPECT_EQ(options.faults.planned().size(), 2U);
  } else {
    EXPECT_THAT(message_of(Fault::kUsage,
                           [&] {
                             set.parse({"--fault", "kill:0:1"});
                           }),
                HasSubstr("--fault: unknown option"));
  }
}

class RunFaultsDeathTest : public testing::Test {
 protected:
  RunFaultsDeathTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    test::write_small_corpus(folder_ / "corpus");
  }
  PretrainOptions options(const std::string& fault) const {
    PretrainOptions options = test::small_options(folder_ / "corpus");
    options.faults.fault = {fault};
    return options;
  }
  TempFolder folder_;
  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
  test::SmallMachine machine_{*world_};
};

TEST_F(RunFaultsDeathTest, ANanInAGradientSkipsThatUpdateAlone) {
  test::EventSink sink;
  Trainer trainer(machine_.machine(), options("nan:0:2"), {&sink});
  std::vector<std::int64_t> skipped;
  for (int step = 0; step < 3; ++step) skipped.push_back(trainer.step().skipped);
  EXPECT_THAT(skipped, testing::ElementsAre(0, 1, 1));
}

TEST_F(RunFaultsDeathTest, AKilledRankTakesTheStepBeforeAndEnds) {
  EXPECT_EXIT(
      {
        test::EventSink sink;
        Trainer trainer(machine_.machine(), options("kill:0:2"), {&sink});
        trainer.step();
        std::fprintf(stderr, "one step");
        trainer.step();
      },
      testing::KilledBySignal(SIGKILL), "one step");
}

TEST_F(RunFaultsDeathTest, ADelayedStepTakesAsLong) {
  test::EventSink sink;
  Trainer trainer(machine_.machine(), options("delay:0:1:0.2"), {&sink});
  const auto start = std::chrono::steady_clock::now();
  trainer.step();
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(200));
}

TEST_F(RunFaultsDeathTest, WritesFailFromThatStepOn) {
  EXPECT_EXIT(
      {
        std::signal(SIGXFSZ, SIG_IGN);
        test::EventSink sink;
        Trainer trainer(machine_.machine(), options("write:0:2"), {&sink});
        const auto can_write = [&] {
          std::ofstream stream(folder_ / "file");
          stream << "text";
          return static_cast<bool>(stream.flush());
        };
        trainer.step();
        const bool before = can_write();
        trainer.step();
        std::_Exit(before && !can_write() ? 7 : 1);
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(RunFaultsDeathTest, RefusesRanksAndCollectivesThatTheRunDoesNotHave) {
  test::EventSink sink;
  EXPECT_THAT(
      message_of(Fault::kUsage, [&] { Trainer(machine_.machine(), options("kill:1:2"), {&sink}); }),
      HasSubstr("--fault: got rank 1, the run has ranks 0 to 0"));
  Trainer trainer(machine_.machine(), options("drop:1:tensor:all-reduce:0"), {&sink});
  EXPECT_THAT(message_of(Fault::kUsage, [&] { trainer.step(); }),
              HasSubstr("--fault: step 1 has no all-reduce number 0 of group tensor"));
}

}  // namespace
}  // namespace piton
