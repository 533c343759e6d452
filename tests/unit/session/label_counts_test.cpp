// Accuracy, macro F1 and Matthews' correlation are those of scikit-learn 1.9 for the same labels,
// correlations of numbers those of scipy.
#include "session/label_counts.h"

#include <gtest/gtest.h>

#include <array>

namespace piton {
namespace {

constexpr std::array kWanted = {0, 1, 2, 2, 1, 0, 0, 2, 3, 1};
constexpr std::array kPredicted = {0, 2, 2, 2, 1, 1, 0, 2, 1, 1};

LabelCounts counts_from(std::size_t begin, std::size_t end) {
  LabelCounts counts;
  for (std::size_t i = begin; i < end; ++i) counts.add(kWanted[i], kPredicted[i], 5);
  return counts;
}

TEST(LabelCounts, HasTheFiguresOfScikitLearn) {
  LabelCounts counts = counts_from(0, 4);
  counts.add(counts_from(4, kWanted.size()));
  EXPECT_EQ(counts.texts(), 10);
  EXPECT_DOUBLE_EQ(counts.accuracy(), 0.7);
  EXPECT_NEAR(counts.macro_f1(), 0.5571428571428572, 1e-12);  // the fifth label is nowhere
  EXPECT_NEAR(counts.matthews(), 0.5892556509887896, 1e-12);
  EXPECT_EQ(counts.accuracy_figure().mean(), 0.7);
}

// One label alone: no correlation has a denominator.
TEST(LabelCounts, HasNoCorrelationOfOneLabel) {
  LabelCounts counts;
  EXPECT_TRUE(counts.empty());
  for (int i = 0; i < 3; ++i) counts.add(1, 1, 2);
  EXPECT_EQ(counts.matthews(), 0);
  EXPECT_EQ(counts.macro_f1(), 1);
}

TEST(LabelCounts, HasTheCorrelationsOfScipy) {
  constexpr std::array kHas = {0.0F, 1.0F, 2.5F, 2.5F, 4.0F, 5.0F, 3.0F};
  constexpr std::array kGets = {0.5F, 0.25F, 2.0F, 3.5F, 3.5F, 4.0F, -1.0F};
  LabelCounts counts;
  for (std::size_t i = 0; i < kHas.size(); ++i) {
    LabelCounts one;
    one.numbers = {{kHas[i], kGets[i]}};
    counts.add(one);
  }
  EXPECT_EQ(counts.texts(), 7);
  EXPECT_NEAR(counts.mean_square(), 2.7589285714285716, 1e-12);
  EXPECT_NEAR(counts.pearson(), 0.619401598784647, 1e-12);
  EXPECT_NEAR(counts.spearman(), 0.5545454545454546, 1e-12);
  counts.numbers = {{1, 2}, {1, 3}};
  EXPECT_EQ(counts.pearson(), 0);
  EXPECT_EQ(counts.spearman(), 0);
}

// accuracy_score and f1_score of 1.9.1 for these sets; the fifth label is nowhere, and its F1 is 0
// (zero_division=0).
TEST(LabelCounts, HasTheFiguresOfScikitLearnForSets) {
  constexpr std::array<std::array<std::uint8_t, 5>, 6> kHas = {{{1, 0, 1, 0, 0},
                                                                {0, 0, 0, 0, 0},
                                                                {1, 1, 1, 0, 0},
                                                                {0, 1, 0, 0, 0},
                                                                {0, 0, 1, 0, 0},
                                                                {1, 0, 0, 1, 0}}};
  constexpr std::array<std::array<float, 5>, 6> kGets = {{{3, -1, 2, -4, -1},
                                                          {-1, 1, -1, -1, -1},
                                                          {1, 0, -1, -1, -1},
                                                          {-1, 2, -1, -1, -1},
                                                          {-1, -1, -1, -1, -1},
                                                          {1, -2, 4, -0.001F, -1}}};
  LabelCounts counts;
  for (std::size_t i = 0; i < kHas.size(); ++i) {
    LabelCounts one;
    one.add_set(kHas[i], kGets[i]);
    counts.add(one);
  }
  EXPECT_EQ(counts.texts(), 6);
  EXPECT_NEAR(counts.accuracy(), 0.3333333333333333, 1e-12);
  EXPECT_NEAR(counts.micro_f1(), 0.7058823529411765, 1e-12);
  EXPECT_NEAR(counts.macro_f1(), 0.44000000000000006, 1e-12);
  ASSERT_EQ(counts.figures().size(), 3U);
  EXPECT_EQ(counts.figures()[1].name, "micro_f1");
}

TEST(LabelCounts, GivesLabelsFromTheThresholdOn) {
  constexpr std::array<std::uint8_t, 2> kHas = {1, 0};
  constexpr std::array kLogits = {1.0F, -1.0F};  // 0.731 and 0.269
  LabelCounts counts;
  counts.add_set(kHas, kLogits, 0.7);
  EXPECT_EQ(counts.accuracy(), 1);
  counts.add_set(kHas, kLogits, 0.26);
  EXPECT_EQ(counts.predicted, (std::vector<double>{2, 1}));
  EXPECT_EQ(counts.accuracy(), 0.5);
  EXPECT_NEAR(label_probabilities(kLogits, true)[0], 0.7310585786300049, 1e-12);
}

TEST(LabelCounts, TakesTheFirstOfEqualLogits) {
  EXPECT_EQ(largest(std::array{0.5F, 1.0F, 1.0F, -2.0F}), 1);
}

}  // namespace
}  // namespace piton
