#include "train/open_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/trainer_run.h"
#include "train/trainer.h"

namespace piton {
namespace {

using test::EventSink;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

class OpenRunTest : public testing::Test {
 protected:
  OpenRunTest() { test::write_small_corpus(folder_ / "corpus"); }
  PretrainOptions options(const std::vector<std::string>& more = {}) const {
    return test::small_options(folder_ / "corpus", more);
  }
  std::string save() const { return (folder_ / "run").string(); }

  // Opens `run`, or only checks it. The messages are in `sink_`.
  void open(OpenedRun& run) { open_run(opening_, run); }
  void check(OpenedRun& run) { check_run(opening_, run); }

  TempFolder folder_;
  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
  test::SmallMachine own_{*world_};
  std::unique_ptr<Communicator> everyone_ = make_group_of_all(*world_, "run");
  EventSink sink_;
  RunSinks sinks_{{&sink_}, /*leads=*/true};
  TrainerInputs inputs_;
  RunOpening opening_{own_.machine(), *everyone_, sinks_, inputs_};
};

TEST_F(OpenRunTest, MakesAllThatAStepNeeds) {
  OpenedRun run(options({"--save", save()}));
  open(run);
  EXPECT_EQ(run.plan.train_iters, 6);
  EXPECT_EQ(run.settled.loop.global_batch_size, 4);
  EXPECT_EQ(run.state.iteration, 0);
  EXPECT_EQ(run.claim, FolderClaim::kOwned);
  EXPECT_FALSE(run.done());
  EXPECT_FALSE(run.saves->is_saved());
  const auto batch = run.data->training_batch(*run.mesh, 0);
  EXPECT_FALSE(run.session->train_step(batch, 0, run.rate->at(run.place_in_schedule())).skipped);
  for (const char* file : {"config.toml", "samples.txt", "metrics.jsonl", "tensorboard"}) {
    EXPECT_TRUE(fs::exists(fs::path(save()) / file)) << file;
  }
  EXPECT_THAT(sink_.messages, Contains(HasSubstr("model: ")));
  EXPECT_THAT(sink_.events, IsEmpty()) << "it has not started";
}

TEST_F(OpenRunTest, KnowsWhetherTheStateIsInTheFolder) {
  {
    Trainer trainer(own_.machine(), options({"--save", save()}), {});
    trainer.step();
    trainer.save();
  }
  OpenedRun resumed(options({"--save", save(), "--load", save()}));
  open(resumed);
  EXPECT_EQ(resumed.state.iteration, 1);
  EXPECT_EQ(resumed.place_in_schedule(), 1);
  EXPECT_TRUE(resumed.saves->is_saved());
  OpenedRun copied(options({"--save", (folder_ / "copy").string(), "--load", save()}));
  open(copied);
  EXPECT_EQ(copied.state.iteration, 1);
  EXPECT_FALSE(copied.saves->is_saved());
  OpenedRun tuned(
      options({"--save", (folder_ / "tuned").string(), "--load", save(), "--finetune"}));
  open(tuned);
  EXPECT_EQ(tuned.state.iteration, 0);
  EXPECT_FALSE(tuned.saves->is_saved());
}

TEST_F(OpenRunTest, TellsAfterAnErrorHowFarItCame) {
  PretrainOptions lost = options({"--save", save()});
  lost.data.data_path = {(folder_ / "lost").string()};
  OpenedRun fresh(lost);
  EXPECT_THAT(message_of(Fault::kData, [&] { open(fresh); }), HasSubstr("lost"));
  EXPECT_EQ(fresh.plan.train_iters, 6) << "the plan is made";
  EXPECT_EQ(fresh.claim, FolderClaim::kNone);
  EXPECT_EQ(fresh.session, nullptr);
  EXPECT_FALSE(fs::exists(save()));
  fs::create_directories(save());
  OpenedRun second(lost);
  EXPECT_THAT(message_of(Fault::kData, [&] { open(second); }), HasSubstr("lost"));
  EXPECT_EQ(second.claim, FolderClaim::kLocked)
      << "a folder that exists is locked before it is read";
  OpenedRun wrong(options({"--save", save(), "--micro-batch-size", "3"}));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { open(wrong); }), HasSubstr("--global-batch-size"));
  EXPECT_EQ(wrong.claim, FolderClaim::kNone);
}

TEST_F(OpenRunTest, ChecksARunWithoutMakingAnything) {
  OpenedRun run(options({"--save", save(), "--dry-run"}));
  check(run);
  EXPECT_EQ(run.session, nullptr);
  EXPECT_EQ(run.claim, FolderClaim::kNone);
  EXPECT_FALSE(fs::exists(save()));
  EXPECT_THAT(sink_.messages,
              AllOf(Contains("it would start from random weights"),
                    Contains("it would do 6 updates, to iteration 6, and save to " + save())));
  OpenedRun opened(options({"--dry-run"}));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { open(opened); }), HasSubstr("--dry-run"));
}

TEST_F(OpenRunTest, LeavesOutTheFolderOfARunWithoutSteps) {
  const OpenedRun run(options({"--save", save(), "--save-interval", "2", "--skip-train"}));
  EXPECT_EQ(run.settled.loop.save, "");
  EXPECT_EQ(run.settled.loop.save_interval, 0);
  EXPECT_TRUE(run.settled.loop.no_load_optim);
}

}  // namespace
}  // namespace piton
