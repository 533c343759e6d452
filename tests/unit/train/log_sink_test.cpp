#include "train/sinks/log_sink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "train/sinks/megatron_flops.h"
#include "train/sinks/progress_sink.h"
#include "unit/train/lines_log.h"

namespace piton {
namespace {

using test::LinesLog;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const RunStart kStart{.ranks = 2,
                      .iteration = 2,
                      .train_iters = 12,
                      .eval_iters = 3,
                      .global_batch = 4,
                      .sequence = 64,
                      .micro_batches = 2,
                      .megatron_flops = 1e12};
const StepMetrics kStep{.iteration = 7,
                        .consumed_samples = 28,
                        .consumed_tokens = 1792,
                        .global_batch = 4,
                        .lm_loss = 5.5,
                        .grad_norm = 1.25,
                        .learning_rate = 3e-4,
                        .tokens_per_second = 1234.4,
                        .model_tflops = 0.5,
                        .share_of_peak = 0.8,
                        .elapsed_ms = 250,
                        .skipped = 1};

TEST(LogLines, AreMegatronsOrBrief) {
  EXPECT_EQ(
      megatron_line(kStart, kStep, {.skipped = 1, .not_finite = 2}, 3650),
      "iteration        7/      12 | consumed samples:           28 | consumed tokens:         "
      "1792 | elapsed time per iteration (ms): 250.0 | learning rate: 3.000E-04 | global "
      "batch size:     4 | lm loss: 5.500000E+00 | loss scale: 1.0 | grad norm: 1.250 | "
      "actual seqlen:    64 | number of skipped iterations: 1 | number of nan iterations: 2 "
      "| samples per second: 16.000 | TFLOPs: 8.000 | tokens per second: 1234 | TFLOP/s: "
      "0.500 | share of peak: 80.0 % | time left: 1:00:50 |");
  EXPECT_EQ(brief_line(kStart, kStep, 10),
            "iteration 7/12 | loss 5.5000 | lr 3.00e-04 | grad norm 1.25 | 1234 tokens/s "
            "(80 % of peak) | 0:00:10 left");
}

// 24 x 3 x 6 x 2 x 4^2 x (1 + 6 / 24 + 32 / 128), and a third more if layers are computed again.
TEST(MegatronFlops, AreThoseOfItsFormula) {
  ModelConfig model;
  model.layers = 2;
  model.hidden = 4;
  LayoutOptions layout{.vocabulary_rows = 32};
  EXPECT_DOUBLE_EQ(megatron_flops(model, layout, 6), 20736);
  layout.recompute.granularity = RecomputeGranularity::kFull;
  EXPECT_DOUBLE_EQ(megatron_flops(model, layout, 6), 27648);
}

TEST(LogLines, GiveNoSignToWhatIsNoNumber) {
  StepMetrics step = kStep;
  step.lm_loss = step.grad_norm = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(megatron_line(kStart, step, {}, 10), HasSubstr("lm loss: NAN | "));
  EXPECT_THAT(megatron_line(kStart, step, {}, 10), HasSubstr("grad norm: nan | "));
  EXPECT_THAT(brief_line(kStart, step, 10), HasSubstr("loss nan | "));
  EXPECT_THAT(brief_line(kStart, step, 10), HasSubstr("grad norm nan | "));
}

TEST(LogLines, HaveTheFiguresThatAreAskedFor) {
  StepMetrics step = kStep;
  step.num_zeros = 12;
  step.params_norm = 3.45678;
  const char* const both = " | num zeros: 12.0 | params norm: 3.457 | ";
  EXPECT_THAT(megatron_line(kStart, step, {}, 10),
              HasSubstr(std::string("grad norm: 1.250") + both + "actual seqlen:    64 |"));
  EXPECT_THAT(brief_line(kStart, step, 10),
              HasSubstr(std::string("grad norm 1.25") + both + "1234 tokens/s"));
}

// As in Megatron-LM: since the last line, and the number of a resumed run starts at none.
TEST(LogLines, CountTheUpdatesSkippedSinceTheLineBefore) {
  LinesLog log;
  LogSink sink(log, {.interval = 2});
  sink.on_start({.iteration = 2, .skipped = 5, .train_iters = 12});
  for (const auto& [iteration, skipped] :
       {std::pair{3, 6}, {4, 7}, {5, 7}, {6, 7}, {7, 8}, {8, 8}}) {
    sink.on_step({.iteration = iteration, .skipped = skipped});
  }
  EXPECT_THAT(log.lines, ElementsAre(HasSubstr("skipped iterations: 2 |"),
                                     HasSubstr("skipped iterations: 0 |"),
                                     HasSubstr("skipped iterations: 1 |")));
}

// As in Megatron-LM: losses of the steps with an update, and times of all.
TEST(LogLines, HaveTheMeansSinceTheLineBefore) {
  LinesLog log;
  LogSink sink(log, {.interval = 3});
  sink.on_start({.iteration = 0, .train_iters = 12});
  const auto step = [&](std::int64_t iteration, double loss, double ms, std::int64_t skipped) {
    sink.on_step({.iteration = iteration,
                  .lm_loss = loss,
                  .grad_norm = loss,
                  .tokens_per_second = 1e6 / ms,  // 1000 tokens
                  .elapsed_ms = ms,
                  .skipped = skipped,
                  .figures = {{.name = "accuracy", .sum = loss, .count = 1}}});
  };
  step(1, 2, 100, 0);
  step(2, 9, 200, 1);
  step(3, 4, 300, 1);
  step(4, 5, 400, 2);
  step(5, 6, 400, 3);
  step(6, 7, 400, 4);
  EXPECT_THAT(
      log.lines,
      ElementsAre(
          AllOf(HasSubstr("iteration (ms): 200.0 |"), HasSubstr("lm loss: 3.000000E+00 |"),
                HasSubstr("grad norm: 4.000 |"), HasSubstr("accuracy: 5.000000E+00 |"),
                HasSubstr("tokens per second: 5000 |")),
          AllOf(HasSubstr("lm loss: 6.000000E+00 |"),
                HasSubstr("number of skipped iterations: 3 | number of nan iterations: 0 |"))));
}

TEST(LogLines, CountTheTimeLeftFromTheStepsOfThisProcess) {
  EXPECT_EQ(seconds_left(kStart, 7, 10), 10);  // 5 steps in 10 s, 5 more to go
  EXPECT_EQ(seconds_left(kStart, 12, 10), 0);
}

TEST(LogSink, WritesEveryIntervalAndAtTheEndOnTheFirstRank) {
  for (const int rank : {0, 1}) {
    LinesLog log;
    LogSink sink(log, {.interval = 5, .brief = true});
    RunStart start = kStart;
    start.rank = rank;
    sink.on_start(start);
    for (StepMetrics step = kStep; step.iteration <= 12; ++step.iteration) sink.on_step(step);
    sink.on_validation({.iteration = 12, .loss = 0});
    sink.on_save(
        {.iteration = 12, .folder = "run/iter_0000012", .seconds = 1.24, .blocked_seconds = 1.24});
    // Training may have waited for all of a save that was in the background.
    sink.on_save({.iteration = 12,
                  .folder = "run/iter_0000012",
                  .in_background = true,
                  .seconds = 1.24,
                  .blocked_seconds = 1.24});
    if (rank == 1) {
      EXPECT_THAT(log.lines, IsEmpty());
      continue;
    }
    EXPECT_THAT(log.lines,
                ElementsAre(HasSubstr("iteration 10/12"), HasSubstr("iteration 12/12"),
                            "validation loss at iteration 12 | lm loss value: 0.000000E+00 | "
                            "lm loss PPL: 1.000000E+00 |",
                            "saved run/iter_0000012 in 1.2 s",
                            "saved run/iter_0000012 in 1.2 s, of which training waited 1.24 s"));
  }
}

class LastProgress final : public Progress {
 public:
  void update(const ProgressState& state) override {
    last = state;
    ++updates;
  }
  void finish() override { finished = true; }
  ProgressState last;
  int updates = 0;
  bool finished = false;
};

TEST(ProgressSink, ShowsStepsAndWhatRunsWithinThem) {
  LastProgress progress;
  ProgressSink sink(progress);
  sink.on_start(kStart);
  sink.on_part({.iteration = 3, .pass = Pass::kBackward, .micro_batch = 1, .micro_batches = 2});
  EXPECT_EQ(progress.last.note, "step 3, backward: micro-batch 2 of 2");
  EXPECT_EQ(progress.last.done, 2);
  EXPECT_EQ(progress.last.total, 12);
  sink.on_part({.iteration = 3, .pass = Pass::kForward, .micro_batch = 1, .micro_batches = 2});
  EXPECT_EQ(progress.updates, 1) << "not more often than an eye can follow";
  sink.on_step(kStep);
  EXPECT_EQ(progress.last.note, "loss 5.5000, 1234 tokens/s");
  EXPECT_EQ(progress.last.done, 7);
  ProgressSink next(progress);
  next.on_start(kStart);
  next.on_step(kStep);
  next.on_part({.iteration = 7, .evaluation = 2, .micro_batches = 2});
  EXPECT_EQ(progress.last.note,
            "loss 5.5000, 1234 tokens/s; evaluation 2 of 3: micro-batch 1 of 2");
  EXPECT_EQ(progress.last.done, 7);
  ProgressSink first(progress);
  first.on_start(kStart);
  first.on_part({.iteration = 7, .evaluation = 1, .micro_batches = 2});
  EXPECT_EQ(progress.last.note, "evaluation 1 of 3: micro-batch 1 of 2");
  sink.on_finish();
  EXPECT_TRUE(progress.finished);
}

}  // namespace
}  // namespace piton
