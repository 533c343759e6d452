// The bias of the choice of experts in training: each update moves it by the counts of the step,
// however the step is cut and computed; nothing else moves it.
#include <gtest/gtest.h>

#include "nn/expert_mlp.h"
#include "support/run_session.h"

namespace piton {
namespace {

using test::RunLayout;
using test::TrainingRun;

constexpr double kRate = 0.02;

ModelConfig biased(double rate = kRate) {
  ModelConfig model = preset("llama-tiny");
  model.experts = ExpertFacts{.experts = 8,
                              .choices = 2,
                              .score = ScoreKind::kSigmoid,
                              .choice_bias = true,
                              .bias_rate = rate};
  model.vocabulary = 101;
  return model;
}

std::map<std::string, std::vector<double>> biases_of(TrainingRun& run) {
  std::map<std::string, std::vector<double>> all;
  for (Parameter* parameter : run.session().parameters())
    if (is_choice_bias(parameter->name)) all[parameter->name] = test::values(parameter->value);
  return all;
}

class BiasOfChoices : public testing::Test {
 protected:
  HostDevice device_;
  std::unique_ptr<World> world_ = make_single_world(device_);
};

TEST_F(BiasOfChoices, MovesAgainstTheCountsOfAStep) {
  const ModelConfig model = biased();
  TrainingRun run(*world_, {.name = "one"}, model);
  run.gradients();
  std::map<std::string, std::vector<double>> wanted;
  for (const Parameter* parameter : run.session().parameters()) {
    if (!is_choice_bias(parameter->name)) continue;
    const std::vector<double> excess = test::values(parameter->gradient);
    double sum = 0;
    for (const double one : excess) {
      sum += one;
      wanted[parameter->name].push_back(one > 0   ? -static_cast<float>(kRate)
                                        : one < 0 ? static_cast<float>(kRate)
                                                  : 0);
    }
    EXPECT_EQ(sum, 0);
  }
  ASSERT_EQ(std::ssize(wanted), model.layers);
  const double norm = run.step().grad_norm;
  EXPECT_LT(norm, 100);  // counts are not in it
  EXPECT_EQ(biases_of(run), wanted);
  // Neither an evaluation nor losses of tokens count.
  const auto batches = test::batches(64, 0, 1, model.vocabulary);
  run.session().evaluate(batches);
  run.session().token_losses(batches, {.training = true});
  EXPECT_EQ(biases_of(run), wanted);
}

TEST_F(BiasOfChoices, IsTheSameHoweverAStepIsComputed) {
  const ModelConfig model = biased();
  TrainingRun one(*world_, {.name = "one"}, model);
  one.losses(4);
  for (const RunLayout& layout :
       {RunLayout{.name = "all again", .recompute = true},
        RunLayout{.name = "MLP again",
        .rules = {.granularity = RecomputeGranularity::kSelective, .parts = {.mlp = true}}},
        RunLayout{.name = "one micro-batch", .micro = 8}}) {
    SCOPED_TRACE(layout.name);
    TrainingRun run(*world_, layout, model);
    run.losses(4);
    EXPECT_EQ(biases_of(run), biases_of(one));
  }
}

TEST_F(BiasOfChoices, StaysWhereAStepIsSkippedOrTheRateIsNothing) {
  TrainingRun still(*world_, {.name = "still"}, biased(0));
  still.losses(2);
  for (const auto& [name, bias] : biases_of(still)) EXPECT_EQ(bias, std::vector<double>(8));
  ModelConfig model = biased();
  model.dtype = DType::kF16;  // the first scale, 2^32, is too large
  TrainingRun run(*world_, {.name = "fp16"}, model);
  ASSERT_TRUE(run.step().skipped);
  for (const auto& [name, bias] : biases_of(run)) EXPECT_EQ(bias, std::vector<double>(8));
  while (run.step().skipped) continue;
  for (const auto& [name, bias] : biases_of(run)) EXPECT_NE(bias, std::vector<double>(8));
}

}  // namespace
}  // namespace piton
