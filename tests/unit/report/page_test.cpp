// The page of `piton report` and its input files.
#include "report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/files/files.h"
#include "base/files/lock_file.h"
#include "report/run_record.h"
#include "report/svg_plot.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

// A page is too long for a message of a test.
bool has(const std::string& page, const std::string& part) {
  return page.find(part) != std::string::npos;
}

using testing::ElementsAre;

using testing::HasSubstr;

TEST(ShortNumber, FitsAnAxis) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(42), "42");
  EXPECT_EQ(short_number(3.25), "3.25");
  EXPECT_EQ(short_number(0.00015), "0.00015");
  EXPECT_EQ(short_number(40000), "40k");
  EXPECT_EQ(short_number(1234567), "1.23M");
  EXPECT_EQ(short_number(2e9), "2G");
  EXPECT_EQ(short_number(-2e9), "-2G");
}

TEST(RoundTicks, AreMultiplesOfOneTwoOrFiveWithinTheRange) {
  EXPECT_THAT(round_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(round_ticks(1, 20, 6), ElementsAre(5, 10, 15, 20));
  EXPECT_THAT(round_ticks(3, 3, 5), ElementsAre(3));
  const std::vector<double> small = round_ticks(4.471e-5, 9.9e-5, 5);
  ASSERT_EQ(small.size(), 2);
  EXPECT_NEAR(small[0], 6e-5, 1e-18);
  EXPECT_NEAR(small[1], 8e-5, 1e-18);
}

TEST(SvgPlot, LeavesOutWhatIsNotFiniteAndIsNothingWithoutPoints) {
  const double none = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(svg_plot("loss", {{.label = "a", .points = {{1, none}}}}), "");
  EXPECT_EQ(svg_plot("loss", {}), "");
  const std::string picture =
      svg_plot("a < b", {{.label = "run & run", .points = {{1, 2}, {2, none}, {3, 4}}}});
  EXPECT_THAT(picture, HasSubstr("a &lt; b"));
  EXPECT_THAT(picture, HasSubstr("run &amp; run"));
  EXPECT_FALSE(has(picture, "nan"));
}

// 100,000 points: the mean of each column and a band that holds the one outlier, in a few KB.
TEST(SvgPlot, GathersManyPointsWithoutLosingAnOutlier) {
  Curve curve{.label = "many"};
  for (int i = 0; i < 100000; ++i) curve.points.push_back({double(i), i == 70000 ? 500.0 : 1.0});
  const std::string picture = svg_plot("loss", {curve});
  EXPECT_LT(picture.size(), 60000U);
  EXPECT_TRUE(has(picture, "class=\"band\""));
  EXPECT_TRUE(has(picture, ">400<")) << "the scale reaches the outlier";
}

std::filesystem::path write_run(const std::filesystem::path& folder, const std::string& lr) {
  create_folders(folder / "iter_0000002");
  write_text_file(folder / "iter_0000002/manifest.json", "{}");
  write_text_file(folder / "iter_0000002/model-00001.safetensors", std::string(2048, 'x'));
  create_folders(folder / "iter_0000003");  // no manifest: not whole
  write_text_file(folder / "config.toml",
                  "[model]\nmodel = \"<tiny>\"\n# rotary-base is not set\n"
                  "[training]\ntrain-iters = 4\nlr = " +
                      lr + "\n");
  write_text_file(folder / "samples.txt",
                  "--- sample 0: 4 tokens, 3 in the loss\n<b>To be</b>,\nor not\n"
                  "--- sample 1: 4 tokens, 4 in the loss\n" +
                      std::string(3000, 'y') + "\xC3\xA4\n");
  MetricsFile metrics(folder / "metrics.jsonl", 0);
  for (int i = 1; i <= 3; ++i) {
    StepMetrics step{.iteration = i,
                     .consumed_tokens = i * 100,
                     .lm_loss = 5.0 - i,
                     .tokens_per_second = 1000,
                     .elapsed_ms = 1500};
    if (i == 2) {
      step.validation_loss = 3.25;
      step.timers = {{"forward-backward", {10.5, 12.25}}};
    }
    metrics.write(step);
  }
  metrics.finish();
  return folder;
}

// A run by samples has no --train-iters.
TEST(RunRecord, CountsTheIterationsOfSamples) {
  RunRecord run;
  run.options = {{"train-iters", "0"}, {"train-samples", "27"}, {"global-batch-size", "4"}};
  EXPECT_EQ(run.planned_iterations(), 6);
}

TEST(RunRecord, IsWhatTheFilesOfARunSay) {
  const TempFolder dir;
  const RunRecord run = read_run(write_run(dir / "one", "0.001") / "");
  EXPECT_EQ(run.name, "one");
  ASSERT_EQ(run.steps.size(), 3);
  EXPECT_EQ(run.steps[1].validation_loss, 3.25);
  EXPECT_EQ(run.option("model"), "<tiny>");
  EXPECT_EQ(run.option("rotary-base"), "");
  EXPECT_EQ(run.planned_iterations(), 4);
  ASSERT_EQ(run.checkpoints.size(), 1);
  EXPECT_EQ(run.checkpoints[0].iteration, 2);
  EXPECT_EQ(run.checkpoints[0].bytes, 2050);
  EXPECT_EQ(run.failure, "");
  EXPECT_FALSE(run.running);
  ASSERT_EQ(run.samples.size(), 2);
  EXPECT_EQ(run.samples[0].first, "sample 0: 4 tokens, 3 in the loss");
  EXPECT_EQ(run.samples[0].second, "<b>To be</b>,\nor not\n");
  EXPECT_EQ(run.samples[1].second.size(), 3003);
  ASSERT_EQ(run.steps[1].timers.size(), 1);
  EXPECT_EQ(run.steps[1].timers[0].most_ms(), 12.25);
}

TEST(Page, ShowsWhatWasAnsweredAtEachEvaluation) {
  const TempFolder dir;
  MetricsFile metrics((create_folders(dir / "one"), dir / "one/metrics.jsonl"), 0);
  for (int i = 1; i <= 30; ++i) {
    StepMetrics step{.iteration = i};
    if (i % 2 == 0) step.answers = {{"Why <so>?", fmt::format("<b>{}\xFF", i)}, {"Second", "x"}};
    metrics.write(step);
  }
  metrics.finish();
  const RunRecord run = read_run(dir / "one");
  ASSERT_EQ(run.steps[3].answers.size(), 2U);
  EXPECT_EQ(run.steps[3].answers[0].prompt, "Why <so>?");
  EXPECT_EQ(run.steps[3].answers[0].answer, "<b>4\xEF\xBF\xBD");
  const std::string page = report_page({run}, {});
  EXPECT_TRUE(has(page, "<h2>Answers</h2>"));
  EXPECT_TRUE(has(page, "one: Why &lt;so&gt;?"));
  EXPECT_TRUE(has(page, "<tr><td class=\"n\">30</td><td>&lt;b&gt;30"));
  EXPECT_TRUE(has(page, "<tr><td class=\"n\">2</td>"));
  EXPECT_FALSE(has(page, "<tr><td class=\"n\">4</td>"));  // neither the first nor one of the last
}

TEST(Page, MarksWhereARunWasResumed) {
  const TempFolder dir;
  MetricsFile metrics((create_folders(dir / "one"), dir / "one/metrics.jsonl"), 0);
  for (int i = 1; i <= 5; ++i) {
    metrics.write({.iteration = i, .lm_loss = 5.0 - i, .resumed = i == 3 || i == 5});
  }
  metrics.finish();
  const RunRecord run = read_run(dir / "one");
  EXPECT_FALSE(run.steps[1].resumed);
  EXPECT_TRUE(run.steps[2].resumed);
  const std::string page = report_page({run}, {});
  EXPECT_THAT(page, HasSubstr("<dt>resumed</dt><dd>2 times, last after iteration 4</dd>"));
  EXPECT_THAT(page, HasSubstr("upright lines: resumed"));
  std::size_t marks = 0;
  for (std::size_t at = page.find("class=\"mark\""); at != page.npos;
       at = page.find("class=\"mark\"", at + 1))
    ++marks;
  EXPECT_EQ(marks, 2U);
}

TEST(RunRecord, KnowsARunThatGoesOnOrFailed) {
  const TempFolder dir;
  const auto folder = write_run(dir / "one", "0.001");
  {
    const LockFile lock(folder / "run.lock", "run");
    EXPECT_TRUE(read_run(folder).running);
  }
  EXPECT_FALSE(read_run(folder).running);
  // Left by a process that was killed: no process has the highest number that there can be.
  std::array<char, 256> host{};
  ASSERT_EQ(::gethostname(host.data(), host.size() - 1), 0);
  write_text_file(folder / "run.lock", std::string(host.data()) + "\n4194305\n2026\n");
  EXPECT_FALSE(read_run(folder).running);
  write_text_file(folder / "run.lock", "another-host\n1\n2026\n");
  EXPECT_TRUE(read_run(folder).running);
  write_text_file(folder / "failure.json", R"({"rank": 1, "message": "the disk is full"})");
  EXPECT_EQ(read_run(folder).failure, "the disk is full");
}

TEST(RunRecord, RefusesAFolderWithoutARun) {
  const TempFolder dir;
  EXPECT_THAT(message_of(Fault::kData, [&] { read_run(dir.path()); }),
              HasSubstr("no metrics.jsonl is in it"));
}

TEST(ReportPage, ShowsRunsBesideEachOther) {
  const TempFolder dir;
  const std::vector<RunRecord> runs = {read_run(write_run(dir / "a", "0.001")),
                                       read_run(write_run(dir / "b", "0.002"))};
  const std::string page = report_page(runs, {.made = "today"});
  for (const char* part :
       {"<title>a, b</title>", "3 of 4", "3.2500 at 2", "stopped", "0:00:05", "&lt;tiny&gt;",
        "<tr class=\"differs\"><td>lr</td><td>0.001</td><td>0.002</td>", "2 KiB", "today",
        "a, sample 0: 4 tokens, 3 in the loss</summary><pre>&lt;b&gt;To be&lt;/b&gt;,\nor "
        "not\n</pre>",
        "yyy ...</pre>", "<td>forward-backward</td><td class=\"n\">12.25</td>"}) {
    EXPECT_TRUE(has(page, part));
  }
  EXPECT_FALSE(has(page, "<tiny>"));
  EXPECT_FALSE(has(page, std::string(2001, 'y')));
  EXPECT_FALSE(has(page, "http-equiv"));
  EXPECT_FALSE(has(page, "src="));  // nothing from elsewhere
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_TRUE(has(report_page({runs[0]}, {.refresh_every = 7}),
                  "<meta http-equiv=\"refresh\" content=\"7\">"));
}

// Of preferences and of distillation: of the steps, and of evaluations.
TEST(ReportPage, ShowsTheFiguresOfAnObjective) {
  const TempFolder dir;
  MetricsFile metrics((create_folders(dir / "one"), dir / "one/metrics.jsonl"), 0);
  for (int i = 1; i <= 4; ++i) {
    StepMetrics step{.iteration = i, .lm_loss = 1.0 / i};
    step.figures = {{"rewards_margin", 0.5 * i, 1}, {"teacher_divergence", 3.0, 2}};
    if (i == 4) step.validation_figures = {{"rewards_margin", 9, 3}};
    metrics.write(step);
  }
  metrics.finish();
  RunRecord run{.name = "one", .steps = read_metrics(dir / "one/metrics.jsonl")};
  ASSERT_EQ(run.steps.size(), 4U);
  ASSERT_EQ(run.steps[3].figures.size(), 2U);
  EXPECT_EQ(run.steps[3].figures[0].mean(), 2);
  EXPECT_EQ(run.steps[0].figures[1].mean(), 1.5);
  ASSERT_EQ(run.steps[3].validation_figures.size(), 1U);
  EXPECT_EQ(run.steps[3].validation_figures[0].mean(), 3);
  EXPECT_TRUE(run.steps[0].validation_figures.empty());
  const std::string page = report_page({run}, {});
  EXPECT_TRUE(has(page, "rewards margin"));
  EXPECT_TRUE(has(page, "teacher divergence"));
  EXPECT_FALSE(has(page, "rewards accuracy"));
}

TEST(ReportPage, HasRoomForARunThatHasNoStepYet) {
  EXPECT_THAT(report_page({RunRecord{.name = "new", .running = true}}, {}),
              HasSubstr("no step yet"));
}

}  // namespace
}  // namespace piton
