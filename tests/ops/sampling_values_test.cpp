// Drawing tokens against what can be counted by hand, and against frequencies of the definition.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "base/threads.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

// On the reference and on the processor's back end.
class Sampling : public ::testing::TestWithParam<bool> {
 protected:
  Sampling()
      : kernels_(GetParam() ? make_cpu_kernels(threads_) : make_reference_kernels()),
        stream_(device_.make_stream()) {}

  // A row for each draw, of the same logits. `filters`: of a row, at least the first four.
  std::vector<double> draws(const std::vector<double>& logits, const std::vector<double>& filters,
                            std::int64_t count) {
    const auto width = std::ssize(logits);
    std::vector<double> rows, all_filters, places;
    for (std::int64_t i = 0; i < count; ++i) {
      rows.insert(rows.end(), logits.begin(), logits.end());
      all_filters.insert(all_filters.end(), filters.begin(), filters.end());
      // sigma, typical, xtc, range, exponent, share: all ids
      constexpr std::array kOthers{0.0, 1.0, 0.0, 0.1, 0.0, 1.0, 0.0};
      const auto given = std::ssize(filters) - 4;
      all_filters.insert(all_filters.end(), kOthers.begin() + given, kOthers.end());
      for (const double word : {11.0, -7.0, static_cast<double>(i), 5.0, 0.0})
        places.push_back(word);
    }
    const Tensor ids = tensor_of(DType::kI32, {count}, std::vector<double>(rows.size() / width));
    const Tensor shares = tensor_of(DType::kF64, {count}, std::vector<double>(rows.size() / width));
    kernels_->run(DrawTokens{.ids = ids,
                             .shares = shares,
                             .logits = tensor_of(DType::kF32, {1, count, width}, rows),
                             .filters = tensor_of(DType::kF64, {count, kDrawFilters}, all_filters),
                             .places = tensor_of(DType::kI32, {count, 5}, places),
                             .vocabulary = width},
                  *stream_);
    shares_ = values(shares);
    return values(ids);
  }

  ThreadPool threads_{2};
  HostDevice device_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
  std::vector<double> shares_;  // of the last draws()
};

INSTANTIATE_TEST_SUITE_P(BackEnds, Sampling, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "cpu" : "reference"; });

// Pearson's sum over ids is below the value that one in a million draws of it exceeds.
TEST_P(Sampling, HasTheFrequenciesOfTheDefinition) {
  constexpr std::int64_t kDraws = 20000;
  const std::vector<double> logits{2, 0.5, -1, 1, 0, 1.5, -0.5, 1.75};
  struct Case {
    std::vector<double> filters;
    std::vector<int> left;  // by hand: 0, 7, 5, 3, 1, 4, 6, 2 is the order
    double exceeded;        // chi-square with left - 1 degrees of freedom, 1 - 1e-6
  };
  for (const Case& one :
       {Case{{1, 8, 1, 0}, {0, 1, 2, 3, 4, 5, 6, 7}, 40.52},
        Case{{2.5, 8, 1, 0}, {0, 1, 2, 3, 4, 5, 6, 7}, 40.52}, Case{{1, 3, 1, 0}, {0, 7, 5}, 27.63},
        // 0.32, 0.57, 0.76: the third one passes 0.7
        Case{{1, 8, 0.7, 0}, {0, 7, 5}, 27.63},
        // weights 1, 0.78, 0.61, 0.37, 0.22, ...
        Case{{1, 8, 1, 0.3}, {0, 7, 5, 3}, 30.66},
        // the mean is 0.66, the deviation 1.02
        Case{{1, 8, 1, 0, 1}, {0, 7, 5, 3}, 30.66},
        // the weighted mean is 1.44, the nearest to it are 5, 7, 3 with shares 0.19, 0.24, 0.11
        Case{{1, 8, 1, 0, 0, 0.5}, {5, 7, 3}, 27.63},
        // the shares are 0.32, 0.25, 0.19, 0.12, ...
        Case{{1, 8, 1, 0, 0, 1, 0, 0.1, 0, 1, 0.15}, {0, 7, 5}, 27.63},
        // of 0, 7, 5 and 3 the last one stays
        Case{{1, 8, 1, 0, 0, 1, 1, 0.1}, {1, 2, 3, 4, 6}, 33.38}}) {
    std::vector<double> counts(logits.size());
    const std::vector<double> ids = draws(logits, one.filters, kDraws);
    for (const double id : ids) counts[static_cast<std::size_t>(id)] += 1;
    double sum = 0;
    for (const int id : one.left) sum += std::exp(logits[id] / one.filters[0]);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const double logit = logits[static_cast<std::size_t>(ids[i])];
      EXPECT_NEAR(shares_[i], std::exp(logit / one.filters[0]) / sum, 1e-12);
    }
    double pearson = 0;
    double drawn = 0;
    for (const int id : one.left) {
      const double expected = kDraws * std::exp(logits[id] / one.filters[0]) / sum;
      pearson += (counts[id] - expected) * (counts[id] - expected) / expected;
      drawn += counts[id];
    }
    EXPECT_LT(pearson, one.exceeded) << one.filters[0] << " " << one.filters[1];
    EXPECT_EQ(drawn, kDraws) << "an id that was filtered";
  }
}

TEST_P(Sampling, TakesTheLowestOfEqualIdsAsTheFirst) {
  EXPECT_EQ(draws({1, 7, 7, 2}, {1, 1, 1, 0}, 3), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(draws({-0.0, 0.0, -1}, {1, 1, 1, 0}, 1), std::vector<double>{0});
  for (const double id : draws({7, 7, 7, 7}, {1, 2, 1, 0}, 50)) EXPECT_LT(id, 2);
  for (const double id : draws({7, 7, 7, 7}, {1, 4, 0.5, 0}, 50)) EXPECT_LT(id, 2);
}

TEST_P(Sampling, HasNoIdWhereNoneCanBeChosen) {
  for (const double bad : {std::nan(""), kUnbounded}) {
    for (const double most : {1.0, 3.0}) {
      EXPECT_EQ(draws({bad, 1, 2}, {1, most, 1, 0}, 1), std::vector<double>{-1});
      EXPECT_EQ(draws({1, 2, bad}, {1, most, 1, 0}, 1), std::vector<double>{-1});
    }
  }
  const double never = -kUnbounded;
  EXPECT_EQ(draws({never, never}, {1, 2, 1, 0}, 1), std::vector<double>{-1});
  EXPECT_EQ(draws({never, -3, never}, {0.01, 3, 0.1, 0.5}, 2), (std::vector<double>{1, 1}));
}

// The temperature is so low that all other weights are 0, and so high that all are equal.
TEST_P(Sampling, TakesTemperaturesFarFromOne) {
  for (const double id : draws({3, 2.999, -4}, {1e-300, 3, 1, 0}, 20)) EXPECT_EQ(id, 0);
  std::vector<double> counts(3);
  for (const double id : draws({30, 0, -30}, {1e9, 3, 1, 0}, 3000))
    counts[static_cast<std::size_t>(id)] += 1;
  for (const double count : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST_P(Sampling, ChangesLogitsAsTransformersAndOpenAiDo) {
  // Two parts of three columns; the last one is padding.
  const Tensor logits = tensor_of(DType::kF32, {2, 1, 3}, std::vector<double>{2, -2, 3, -3, 1, 9});
  kernels_->run(
      ChangeLogits{
          .logits = logits,
          .seen = tensor_of(DType::kI32, {3, 3}, std::vector<double>{0, 0, 0, 0, 1, 1, 0, 4, 3}),
          .penalties = tensor_of(DType::kF64, {1, 3}, std::vector<double>{2, 0.25, 0.5}),
          .allowed = tensor_of(DType::kU8, {1, 1}, std::vector<double>{0b10111}),
          .vocabulary = 5},
      *stream_);
  EXPECT_EQ(values(logits), (std::vector<double>{1, -4.75, 3, -kUnbounded, -0.75, 9}));
}

}  // namespace
}  // namespace piton::test
