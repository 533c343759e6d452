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

TEST(LabelCounts, TakesTheFirstOfEqualLogits) {
  EXPECT_EQ(largest(std::array{0.5F, 1.0F, 1.0F, -2.0F}), 1);
}

}  // namespace
}  // namespace piton
