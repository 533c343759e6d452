// Accuracy, macro F1 and Matthews' correlation are those of scikit-learn 1.9 for the same labels.
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

TEST(LabelCounts, TakesTheFirstOfEqualLogits) {
  EXPECT_EQ(largest(std::array{0.5F, 1.0F, 1.0F, -2.0F}), 1);
}

}  // namespace
}  // namespace piton
