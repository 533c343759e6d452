#include "train/run/run_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/files/files.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

TEST(RunFolder, IsOneRunsAtATime) {
  const TempFolder dir;
  RunFolder first(dir / "run");
  EXPECT_THAT(message_of(Fault::kUsage, [&] { RunFolder second(dir / "run"); }),
              HasSubstr("run: in use by process "));
}

TEST(RunFolder, RemovesTheDraftsOfTheRunThatWasKilledThereAndNoOthers) {
  const TempFolder dir;
  fs::create_directories(dir / "run");
  std::ofstream(dir / "run/run.lock") << "here\n4711\n2026-01-01 00:00:00 UTC\n";
  for (const char* name : {"config.toml.tmp-4711", "metrics.jsonl.tmp-4711", "config.toml.tmp-4712",
                           "notes.tmp-4711"}) {
    std::ofstream(dir / "run" / name) << "x";
  }
  const RunFolder folder(dir / "run");
  EXPECT_FALSE(fs::exists(dir / "run/config.toml.tmp-4711"));
  EXPECT_FALSE(fs::exists(dir / "run/metrics.jsonl.tmp-4711"));
  EXPECT_TRUE(fs::exists(dir / "run/config.toml.tmp-4712"));
  EXPECT_TRUE(fs::exists(dir / "run/notes.tmp-4711"));
}

// A run that is refused, as for a --load that cannot be read, must not leave a folder.
TEST(RunFolder, ThatNothingWasWrittenToIsRemoved) {
  const TempFolder dir;
  { const RunFolder folder(dir / "run"); }
  EXPECT_FALSE(fs::exists(dir / "run"));
  {
    RunFolder folder(dir / "run");
    folder.start("seed = 1\n", 0);
  }
  EXPECT_TRUE(fs::exists(dir / "run/config.toml"));
  fs::create_directories(dir / "empty");
  { const RunFolder folder(dir / "empty"); }
  EXPECT_TRUE(fs::exists(dir / "empty")) << "it was there before";
}

TEST(Continues, MeansTheSameFolderOrACheckpointInIt) {
  const TempFolder dir;
  const fs::path save = dir / "run";
  EXPECT_TRUE(continues(save, save));
  EXPECT_TRUE(continues(save / "", save)) << "neither is there yet";
  fs::create_directories(save / "iter_0000010");
  EXPECT_TRUE(continues(save / "..", dir.path()));
  EXPECT_TRUE(continues(save / "iter_0000010", save));
  EXPECT_TRUE(continues(save / "iter_0000010/", save));
  EXPECT_FALSE(continues(dir / "other", save));
  EXPECT_FALSE(continues(dir / "other/iter_0000010", save));
  EXPECT_FALSE(continues("", save));
  EXPECT_FALSE(continues(save, ""));
}

TEST(RareSaves, AreWarnedOfWhereHoursWouldBeLost) {
  EXPECT_EQ(warning_of_rare_saves(3000, "run", 0), "");
  EXPECT_EQ(warning_of_rare_saves(1e6, "run", 100), "");
  EXPECT_THAT(warning_of_rare_saves(7200, "run", 0),
              HasSubstr("about 2.0 hours more and saves at its end only"));
  EXPECT_THAT(warning_of_rare_saves(7200, "", 0), HasSubstr("give --save DIR and --save-interval"));
}

// Files above a limit are refused, as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    handler_ = ::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  ~FileLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

TEST(Metrics, ThatTheDiskDoesNotTakeWaitAndNoLineIsCut) {
  const TempFolder dir;
  MetricsFile metrics(dir / "m.jsonl", 0);
  EXPECT_EQ(metrics.write({.iteration = 1}), "");
  const std::string first = read_text_file(dir / "m.jsonl");
  {
    const FileLimit limit(first.size() + first.size() / 2);
    EXPECT_THAT(metrics.write({.iteration = 2}), HasSubstr("m.jsonl: cannot write: "));
    EXPECT_NE(metrics.write({.iteration = 3}), "");
    EXPECT_EQ(read_text_file(dir / "m.jsonl"), first) << "half a line";
    EXPECT_THROW(metrics.finish(), Error);
  }
  EXPECT_EQ(metrics.write({.iteration = 4}), "");
  metrics.finish();
  std::istringstream lines(read_text_file(dir / "m.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_TRUE(line.starts_with("{\"iteration\":" + std::to_string(++count) + ",")) << line;
  }
  EXPECT_EQ(count, 4);
}

TEST(Metrics, AreReadBack) {
  const TempFolder dir;
  MetricsFile metrics(dir / "m.jsonl", 0);
  StepMetrics first{.iteration = 1,
                    .consumed_samples = 8,
                    .consumed_tokens = 512,
                    .lm_loss = 4.5,
                    .grad_norm = 1.5,
                    .learning_rate = 3e-4,
                    .tokens_per_second = 1000.5,
                    .model_tflops = 0.25,
                    .share_of_peak = 0.5,
                    .elapsed_ms = 512.25,
                    .skipped = 3};
  first.memory.peak_total_bytes = 123456;
  metrics.write(first);
  metrics.write({.iteration = 2,
                 .lm_loss = std::numeric_limits<double>::infinity(),
                 .validation_loss = 4.25});
  std::ofstream(dir / "m.jsonl", std::ios::app) << "{\"iteration\":3,\"lm_l";  // a crash
  const std::vector<StepMetrics> losses = read_metrics(dir / "m.jsonl");
  ASSERT_EQ(losses.size(), 2);
  EXPECT_EQ(to_json(losses[0]), to_json(first));
  EXPECT_FALSE(losses[0].validation_loss.has_value());
  EXPECT_TRUE(std::isnan(losses[1].lm_loss));
  EXPECT_EQ(losses[1].validation_loss, 4.25);
}

}  // namespace
}  // namespace piton
