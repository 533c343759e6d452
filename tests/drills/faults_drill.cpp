// --fault through whole runs of four ranks under the launcher: a rank that stops or is killed, and
// a collective that does not take place. What goes wrong is seen, with its place, the run ends in
// time, and the checkpoint before it continues with two ranks on the samples that are next.
//
// The binary of a release build has no --fault, so the program of the drills is such a run's rank
// itself (main.cpp).
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "drills/tiny_run.h"
#include "run_metrics.h"
#include "support/temp_folder.h"

namespace piton::drill {
namespace {

using std::chrono::seconds;

constexpr int kStep = 8;  // of the fault; 5 is saved before it

class Faults : public testing::Test {
 protected:
  static constexpr int kIterations = 20;

  static void SetUpTestSuite() {
    corpus_ = std::make_unique<TempFolder>();
    make_corpus(corpus_->path());
    flags_ = pretrain_in_steps(corpus_->path(), kIterations, "1e-3");
    run_whole(flags_, corpus_->path(), kIterations, &wanted_);
  }
  static void TearDownTestSuite() { corpus_.reset(); }

  // Four ranks, two of each of two tensor groups, until they end.
  std::optional<ProcessEnd> train(const std::string& fault, const std::filesystem::path& to) {
    const Words flags(flags_.begin() + 1, flags_.end());  // without the command's name
    // The step before takes seconds, so that the save before it, in the background, ends.
    const std::string delay = fmt::format("delay:0:{}:2", kStep - 1);
    const Words ranks = Words{launcher(), "4", program(), "rank", delay, fault} + flags +
                        Words{"--tensor-model-parallel-size",  "2",    "--zero-stage", "1",
                              "--distributed-timeout-minutes", "0.13", "--save",       to.string()};
    Process process(ranks, {.environment = {grace()}, .out = to.string() + ".log"});
    return process.wait(seconds(60));
  }
  static std::string program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

  // Two ranks continue after `iteration`, and end as one process did that nothing happened to.
  void expect_continued(const std::filesystem::path& from, std::int64_t iteration) {
    const std::filesystem::path to = from.string() + "_again";
    const std::filesystem::path log = to.string() + ".log";
    const Words again =
        Words{launcher(), "2"} + with_program(flags_) + Words{"--tensor-model-parallel-size",
                                                              "2",
                                                              "--load",
                                                              from.string(),
                                                              "--save",
                                                              to.string(),
                                                              "--ckpt-step",
                                                              std::to_string(iteration)};
    Process process(again, {.out = log});
    ASSERT_EQ(process.wait(seconds(60)), (ProcessEnd{.code = 0})) << text_of(log);
    const auto got = steps_of(to);
    ASSERT_EQ(got.rbegin()->first, kIterations) << text_of(log);
    EXPECT_EQ(std::ssize(got), kIterations - iteration);
    for (const auto& [number, step] : got) expect_as_wanted(number, step);
  }
  void expect_as_wanted(std::int64_t number, const StepFigures& step) const {
    EXPECT_EQ(step.samples, wanted_.at(number).samples) << "step " << number;
    EXPECT_NEAR(step.loss, wanted_.at(number).loss, 1e-4 * step.loss) << "step " << number;
  }

  const TempFolder folder_;
  inline static std::unique_ptr<TempFolder> corpus_;
  inline static Words flags_;
  inline static std::map<std::int64_t, StepFigures> wanted_;
};

TEST_F(Faults, ARankThatStopsIsNamedAndTheRestEnd) {
  std::vector<std::string> faults{"stop"};
  if (whole()) faults.emplace_back("kill");
  for (const std::string& fault : faults) {
    SCOPED_TRACE(fault);
    const auto to = folder_ / fault;
    const auto end = train(fault + ":2:" + std::to_string(kStep), to);
    const std::string log = text_of(to.string() + ".log");
    ASSERT_TRUE(end) << "still runs\n" << log;
    EXPECT_NE(*end, (ProcessEnd{.code = 0})) << log;
    EXPECT_THAT(
        text_of(to / "failure.json"),
        testing::AllOf(testing::HasSubstr("\"fault\": \"peer\""), testing::HasSubstr("rank 2")))
        << log;
    for (const auto& [number, step] : steps_of(to)) {
      EXPECT_LT(number, kStep);
      expect_as_wanted(number, step);
    }
    EXPECT_EQ(latest(to), 5) << log;
    EXPECT_NE(hash_of(to), "");
    expect_continued(to, 5);
  }
}

TEST_F(Faults, ACollectiveThatDoesNotTakePlaceIsSeenInItsStep) {
  std::vector<std::string> collectives{"tensor:all-reduce:5"};
  if (whole()) collectives.emplace_back("context+expert+data gradients:reduce-scatter:0");
  for (const std::string& collective : collectives) {
    SCOPED_TRACE(collective);
    const auto to = folder_ / collective.substr(0, collective.find(':'));
    const auto end = train("drop:" + std::to_string(kStep) + ":" + collective, to);
    const std::string log = text_of(to.string() + ".log");
    ASSERT_TRUE(end) << "still runs\n" << log;
    ASSERT_EQ(*end, (ProcessEnd{.code = 0})) << log;
    const auto got = steps_of(to);
    ASSERT_EQ(std::ssize(got), kIterations);
    for (const auto& [number, step] : got) {
      if (number < kStep) expect_as_wanted(number, step);
    }
    const StepFigures& right = wanted_.at(kStep);
    const StepFigures& wrong = got.at(kStep);
    EXPECT_GT(std::abs(wrong.loss - right.loss) / right.loss +
                  std::abs(wrong.norm - right.norm) / right.norm,
              1e-3);
    expect_continued(to, 5);
  }
  const auto to = folder_ / "none";
  const auto end = train("drop:2:tensor:all-to-all:0", to);
  const std::string log = text_of(to.string() + ".log");
  EXPECT_EQ(end, (ProcessEnd{.code = 2})) << log;
  EXPECT_THAT(log,
              testing::HasSubstr("--fault: step 2 has no all-to-all number 0 of group tensor"));
}

}  // namespace
}  // namespace piton::drill
