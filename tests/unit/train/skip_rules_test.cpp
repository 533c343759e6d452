#include "train/skip_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/errors.h"
#include "support/temp_folder.h"
#include "support/trainer_run.h"
#include "unit/train/lines_log.h"

namespace piton {
namespace {

using test::LinesLog;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class SkipRulesTest : public testing::Test {
 protected:
  // A step that was skipped because of this norm.
  static StepReport skipped(double norm, double loss_scale = 1) {
    return {.loss = 2.5, .grad_norm = norm, .skipped = true, .loss_scale = loss_scale};
  }
  void count(SkipRules& rules, const StepReport& report, const std::vector<std::string>& bad = {}) {
    rules.count({.iteration = ++iteration_,
                 .report = report,
                 .next_loss_scale = report.loss_scale / 2,
                 .parameters_not_finite = [&] {
                   ++asked_;
                   return bad;
                 }});
  }

  LinesLog log_;
  std::int64_t iteration_ = 0;
  int asked_ = 0;  // for the parameters
};

TEST_F(SkipRulesTest, EndTheRunAfterSoManySkipsInARow) {
  SkipRules rules(3, {}, log_);
  count(rules, skipped(kInfinity));
  count(rules, skipped(kInfinity));
  EXPECT_EQ(rules.in_a_row(), 2);
  count(rules, {.loss = 2.5, .grad_norm = 1});
  EXPECT_EQ(rules.in_a_row(), 0) << "an update starts the count again";
  count(rules, skipped(kInfinity));
  count(rules, skipped(kInfinity));
  EXPECT_EQ(asked_, 0);
  EXPECT_THAT(message_of(Fault::kDiverged, [&] { count(rules, skipped(kInfinity)); }),
              AllOf(HasSubstr("iteration 6: 3 updates in a row had no finite gradients;"),
                    HasSubstr("lower --lr")));
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(log_.lines.size(), 5);
  EXPECT_EQ(log_.lines[0], "iteration 1: gradients are not finite; the update is skipped");
}

// Backward goes from the head to the embedding: the last place in forward is met first.
TEST_F(SkipRulesTest, NameTheLayerThatBackwardMetFirst) {
  const auto message = [&](const std::vector<std::string>& bad, double loss = 2.5) {
    SkipRules rules(1, {}, log_);
    StepReport report = skipped(kInfinity);
    report.loss = loss;
    return message_of(Fault::kDiverged, [&] { count(rules, report, bad); });
  };
  EXPECT_THAT(
      message({"embedding.token.weight", "layers.10.mlp.up.weight", "layers.9.norm.weight"}),
      AllOf(HasSubstr("(backward met the first in layers.10.mlp.up.weight; 3 parameters "
                      "have some);"),
            Not(HasSubstr("the loss"))));
  EXPECT_THAT(message({"final_norm.weight", "layers.10.mlp.up.weight"}),
              HasSubstr("met the first in final_norm.weight"));
  EXPECT_THAT(message({"final_norm.weight", "head.weight"}), HasSubstr("the first in head.weight"));
  EXPECT_THAT(message({"embedding.token.weight"}),
              HasSubstr("the first in embedding.token.weight"));
  EXPECT_THAT(message({"head.weight"}, kInfinity),
              HasSubstr("1 parameters have some, and the loss is not finite)"));
}

TEST_F(SkipRulesTest, DoNotCountASpike) {
  SkipRules rules(1, {}, log_);
  count(rules, skipped(12.5));
  EXPECT_EQ(rules.in_a_row(), 0);
  EXPECT_THAT(log_.lines, ElementsAre("iteration 1: a spike (loss 2.5000, gradient norm 12.500); "
                                      "the update is skipped"));
}

TEST_F(SkipRulesTest, DoNotCountOverflowsByWhichTheLossScaleFindsItsPlace) {
  OptimizerOptions options;
  options.fp16 = true;
  options.min_loss_scale = 4;
  SkipRules rules(2, options, log_);
  count(rules, skipped(kInfinity, /*loss_scale=*/16));
  count(rules, skipped(kInfinity, /*loss_scale=*/8));
  EXPECT_EQ(rules.in_a_row(), 0);
  EXPECT_THAT(log_.lines[1], HasSubstr("iteration 2: gradients overflow at a loss scale of 8; the "
                                       "update is skipped, the scale is now 4"));
  count(rules, skipped(kInfinity, /*loss_scale=*/4));
  EXPECT_EQ(rules.in_a_row(), 1) << "the smallest scale cannot adapt";
  options.loss_scale = 16;
  SkipRules constant(2, options, log_);
  count(constant, skipped(kInfinity, /*loss_scale=*/16));
  EXPECT_EQ(constant.in_a_row(), 1) << "nor can a constant one";
}

TEST_F(SkipRulesTest, SayNothingOfAnUpdate) {
  SkipRules rules(1, {}, log_);
  count(rules, {.loss = 2.5, .grad_norm = 1});
  EXPECT_THAT(log_.lines, IsEmpty());
}

// The session knows that the model is fp16; the options of the run do not.
TEST(SkipRulesOfATrainer, KnowThatTheLossScaleOfFp16Adapts) {
  const TempFolder folder;
  test::write_small_corpus(folder / "corpus");
  HostDevice device;
  const std::unique_ptr<World> world = make_single_world(device);
  const test::SmallMachine own(*world);
  test::EventSink sink;
  Trainer trainer(own.machine(),
                  test::small_options(folder / "corpus", {"--fp16", "--initial-loss-scale", "1e30",
                                                          "--max-consecutive-skips", "2"}),
                  {&sink});
  for (int i = 0; i < 4; ++i) trainer.step();
  EXPECT_EQ(trainer.session().optimizer().skipped(), 4);
  EXPECT_THAT(sink.messages,
              Contains(HasSubstr("iteration 4: gradients overflow at a loss scale")));
}

}  // namespace
}  // namespace piton
