// --rollback-on-divergence and --loss-watchdog-threshold in whole runs.
#include "train/rollback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/thread_world.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using test::EventSink;
using testing::AllOf;
using testing::ElementsAreArray;
using testing::HasSubstr;

class RollbackTest : public testing::Test {
 protected:
  RollbackTest() { test::write_small_corpus(folder_ / "corpus"); }
  std::string run(const std::string& name) const { return (folder_ / name).string(); }
  PretrainOptions options(const std::vector<std::string>& more) const {
    return test::small_options(folder_ / "corpus", more);
  }
  // All that is left of a run. Returns its losses.
  std::vector<double> finish(const PretrainOptions& options, int ranks = 1) {
    std::vector<double> losses;
    test::run_ranks(ranks, [&](World& world) {
      test::SmallMachine machine(world);
      EventSink sink;
      Trainer trainer(machine.machine(), options, {&sink});
      while (!trainer.done()) {
        trainer.step();
        if (trainer.save_due()) trainer.save();
      }
      if (world.rank() == 0) losses = sink.losses;
    });
    return losses;
  }
  std::string diverges(const PretrainOptions& options) {
    return message_of(Fault::kDiverged, [&] { finish(options); });
  }

  TempFolder folder_;
};

// Two ranks, of which one has the fault.
TEST_F(RollbackTest, ContinuesAsARunThatPassesOverTheSamplesDoes) {
  for (const std::vector<std::string>& layout :
       {std::vector<std::string>{}, std::vector<std::string>{"--tensor-model-parallel-size", "2"},
        std::vector<std::string>{"--zero-stage", "3"}}) {
    const std::string name = layout.empty() ? "one" : layout[0];
    SCOPED_TRACE(name);
    const int ranks = layout.empty() ? 1 : 2;
    std::vector<std::string> common{"--save-interval", "3", "--train-iters", "8"};
    common.insert(common.end(), layout.begin(), layout.end());
    const auto words = [&](std::vector<std::string> more) {
      more.insert(more.end(), common.begin(), common.end());
      return options(more);
    };
    PretrainOptions faulty = words({"--save", run(name + "-back"), "--max-consecutive-skips", "2",
                                    "--rollback-on-divergence", "1"});
    faulty.faults.fault = {fmt::format("nan:{}:4", ranks - 1), "nan:0:5"};
    const std::vector<double> got = finish(faulty, ranks);
    const std::vector<double> wanted =
        finish(words({"--save", run(name + "-skips"), "--iterations-to-skip", "3", "4"}), ranks);
    EXPECT_EQ(got.size(), 8U);
    EXPECT_THAT(std::vector(got.end() - 3, got.end()),
                ElementsAreArray(wanted.end() - 3, wanted.end()));
    const std::filesystem::path end = find_checkpoint(run(name + "-back"));
    const std::filesystem::path other = find_checkpoint(run(name + "-skips"));
    EXPECT_EQ(weights_hash(end), weights_hash(other));
    EXPECT_EQ(optimizer_hash(end), optimizer_hash(other));
    TrainState state = read_state(end, read_manifest(end));
    TrainState other_state = read_state(other, read_manifest(other));
    EXPECT_EQ(state.facts["train.rollbacks"], "1");
    state.facts = other_state.facts = {};
    EXPECT_EQ(state, other_state);
  }
}

TEST_F(RollbackTest, OfHighLossesTakesWeightsFromBeforeThem) {
  finish(options({"--save", run("run"), "--train-iters", "2", "--lr-decay-iters", "9"}));
  const std::vector<std::string> more{"--save",
                                      run("run"),
                                      "--load",
                                      run("run"),
                                      "--save-interval",
                                      "1",
                                      "--lr-decay-iters",
                                      "9",
                                      "--loss-watchdog-threshold",
                                      "0.1",
                                      "--loss-watchdog-patience",
                                      "2",
                                      "--rollback-on-divergence",
                                      "1",
                                      "--train-iters"};
  const auto until = [&](const char* iteration) {
    std::vector<std::string> words = more;
    words.emplace_back(iteration);
    return options(words);
  };
  finish(until("3"));  // the count continues over a restart
  finish(until("4"));
  const std::filesystem::path folder = run("run");
  EXPECT_EQ(weights_hash(folder / "iter_0000004"), weights_hash(folder / "iter_0000002"));
  EXPECT_NE(weights_hash(folder / "iter_0000003"), weights_hash(folder / "iter_0000002"));
  finish(until("5"));
  EXPECT_THAT(diverges(until("9")),
              AllOf(HasSubstr("iteration 6: the loss is "), HasSubstr("the last of 2 in a row"),
                    HasSubstr("(--rollback-on-divergence 1: the run went back 1 times)")));
}

TEST_F(RollbackTest, NeedsACheckpointFromBefore) {
  const std::vector<std::string> watchdog{"--loss-watchdog-threshold", "0.1",
                                          "--loss-watchdog-patience", "1"};
  EXPECT_THAT(diverges(options(watchdog)), HasSubstr("the last of 1 in a row above"));
  std::vector<std::string> more = watchdog;
  for (const std::string& word :
       {std::string("--save"), run("young"), std::string("--save-interval"), std::string("1"),
        std::string("--rollback-on-divergence"), std::string("3")})
    more.push_back(word);
  EXPECT_THAT(diverges(options(more)), HasSubstr("has no checkpoint from before that"));
}

TEST_F(RollbackTest, RefusesOptionsWithoutACheckpoint) {
  const auto refusal = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--rollback-on-divergence", "1"});
    return message_of(Fault::kUsage, [&] { finish(options(more)); });
  };
  EXPECT_THAT(refusal({}), HasSubstr("--rollback-on-divergence: goes back to a checkpoint of this "
                                     "run; give --save"));
  EXPECT_THAT(refusal({"--save", run("x")}), HasSubstr("give --save-interval"));
  EXPECT_THAT(refusal({"--save", run("x"), "--save-interval", "1", "--no-save-optim"}),
              HasSubstr("leave out --no-save-optim"));
}

}  // namespace
}  // namespace piton
