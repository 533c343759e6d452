// A run whose folder, or files in it, are taken away while it runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/trainer_run.h"

namespace piton {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
namespace fs = std::filesystem;

class LostFiles : public testing::Test {
 protected:
  LostFiles() { test::write_small_corpus(folder_ / "corpus"); }
  PretrainOptions options(std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"--save", run_.string(), "--eval-iters", "0"});
    return test::small_options(folder_ / "corpus", more);
  }
  int lines(const fs::path& file) const {
    std::ifstream all(file);
    int count = 0;
    for (std::string line; std::getline(all, line); ++count) {
      EXPECT_TRUE(line.starts_with(fmt::format("{{\"iteration\":{},", count + 1))) << line;
    }
    return count;
  }

  TempFolder folder_;
  fs::path run_ = folder_ / "run";
  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
  test::SmallMachine own_{*world_};
};

TEST_F(LostFiles, ARunDoesNotMakeAFolderAgainThatWasRenamedOrRemoved) {
  for (const bool renamed : {true, false}) {
    Trainer trainer(own_.machine(), options({"--save-interval", "1"}), {});
    trainer.step();
    if (renamed) {
      fs::rename(run_, folder_ / "elsewhere");
    } else {
      fs::remove_all(run_);
    }
    trainer.step();
    const auto wanted =
        AllOf(HasSubstr("run.lock is gone: the folder does not belong to this run any more"),
              HasSubstr("nothing more is saved"));
    EXPECT_THAT(message_of(Fault::kData, [&] { trainer.save_if_possible(); }), wanted);
    EXPECT_THAT(message_of(Fault::kData, [&] { trainer.save(); }), wanted);
    EXPECT_FALSE(fs::exists(run_));
  }
  EXPECT_TRUE(fs::exists(folder_ / "elsewhere/metrics.jsonl"));
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere/iter_0000002"));
}

TEST_F(LostFiles, TheFolderOfAnotherRunIsLeftAlone) {
  test::EventSink told;
  Trainer first(own_.machine(), options(), {&told});
  first.step();
  fs::rename(run_, folder_ / "elsewhere");
  std::unique_ptr<World> world = make_single_world(device_);
  test::SmallMachine others(*world);
  {
    Trainer second(others.machine(), options({"--seed", "7"}), {});
    second.step();
    first.step();
    EXPECT_THAT(message_of(Fault::kData, [&] { first.save(); }),
                HasSubstr("run.lock is another run's: the folder"));
    EXPECT_FALSE(fs::exists(run_ / "failure.json"));
    EXPECT_EQ(lines(run_ / "metrics.jsonl"), 1);
    EXPECT_THAT(told.messages,
                Contains(HasSubstr("metrics.jsonl: its folder was removed, renamed or replaced")));
    second.save();
    second.finish();
  }
  EXPECT_TRUE(fs::exists(run_ / "iter_0000001"));
  EXPECT_FALSE(fs::exists(run_ / "iter_0000002"));
  EXPECT_FALSE(fs::exists(run_ / "run.lock"));
  EXPECT_EQ(lines(folder_ / "elsewhere/metrics.jsonl"), 2);
}

TEST_F(LostFiles, FiguresThatWereRemovedAreWrittenAgainWholeAndItIsSaid) {
  test::EventSink told;
  Trainer trainer(own_.machine(), options(), {&told});
  trainer.step();
  fs::remove(run_ / "metrics.jsonl");
  fs::remove_all(run_ / "tensorboard");
  trainer.step();
  trainer.step();
  EXPECT_EQ(lines(run_ / "metrics.jsonl"), 3);
  EXPECT_THAT(told.messages,
              Contains(AllOf(HasSubstr("warning: "), HasSubstr("metrics.jsonl: was removed while "
                                                               "the run wrote to it; it is there "
                                                               "again, with all that was in it")))
                  .Times(1));
  ASSERT_TRUE(fs::exists(run_ / "tensorboard"));
  const fs::path events = fs::directory_iterator(run_ / "tensorboard")->path();
  const std::string all = read_text_file(events);
  EXPECT_THAT(all, HasSubstr("brain.Event:2"));
  std::size_t records = 0;
  for (std::size_t at = 0; (at = all.find("lm loss", at)) != all.npos; ++at) ++records;
  EXPECT_EQ(records, 3U);
  EXPECT_THAT(told.messages,
              Contains(AllOf(HasSubstr("tfevents"), HasSubstr("was removed"))).Times(1));
  trainer.save();
  trainer.finish();
}

TEST_F(LostFiles, AFileThatWasReplacedOrCutGetsTheNextLines) {
  test::EventSink told;
  Trainer trainer(own_.machine(), options(), {&told});
  trainer.step();
  const fs::path metrics = run_ / "metrics.jsonl";
  fs::copy_file(metrics, run_ / "copy");
  fs::rename(run_ / "copy", metrics);
  trainer.step();
  EXPECT_EQ(lines(metrics), 2);
  EXPECT_THAT(told.messages, Contains(HasSubstr("metrics.jsonl: was replaced while")));
  fs::resize_file(metrics, 0);
  trainer.step();
  EXPECT_THAT(read_text_file(metrics), testing::StartsWith("{\"iteration\":3,"));
  EXPECT_THAT(told.messages, Contains(HasSubstr("metrics.jsonl: was cut while")));
}

}  // namespace
}  // namespace piton
