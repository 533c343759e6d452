// Routing, sums over experts and their products against what is computed by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/threads.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/compare.h"

namespace piton::test {
namespace {

// On the reference and on the processor's back end.
class ExpertValues : public ::testing::TestWithParam<bool> {
 protected:
  ExpertValues()
      : kernels_(GetParam() ? make_cpu_kernels(threads_) : make_reference_kernels()),
        stream_(device_.make_stream()) {}

  void run(const KernelCall& call) { kernels_->run(call, *stream_); }

  static Tensor fp32(const Shape& shape, const std::vector<double>& contents) {
    return tensor_of(DType::kF32, shape, contents);
  }
  static Tensor int32(const Shape& shape, const std::vector<double>& contents) {
    return tensor_of(DType::kI32, shape, contents);
  }
  static void expect_values(const Tensor& tensor, const std::vector<double>& wanted) {
    EXPECT_TRUE(close(tensor, tensor_of(DType::kF64, tensor.shape(), wanted),
                      tolerance(DType::kF32, /*terms=*/4)));
  }

  // Tokens with these logits, routed.
  RouteTokens routed(std::int64_t experts, std::int64_t k, const std::vector<double>& logits,
                     bool normalized = false) {
    const std::int64_t n = std::ssize(logits) / experts;
    const auto unwritten = [](const Shape& shape) {
      return int32(shape, std::vector<double>(static_cast<std::size_t>(shape.elements()), -9));
    };
    const RouteTokens call{.weights = host_tensor(DType::kF32, {n, k}),
                           .choices = unwritten({n, k}),
                           .counts = unwritten({experts}),
                           .balance = tensor_of(DType::kF64, {1}, std::vector<double>{100}),
                           .logits = fp32({n, experts}, logits),
                           .normalized = normalized};
    run(call);
    return call;
  }

  // The rows of `count` experts from `first` on.
  ExpertRows sorted(const Tensor& choices, std::int64_t first, std::int64_t count) {
    const auto unwritten = [](const Shape& shape) {
      return int32(shape, std::vector<double>(static_cast<std::size_t>(shape.elements()), -9));
    };
    const SortByExpert call{
        .rows = {.sources = unwritten({choices.dim(0) * std::min(choices.dim(1), count)}),
                 .places = unwritten(choices.shape()),
                 .first_rows = unwritten({count + 1})},
        .choices = choices,
        .first = first};
    run(call);
    return call.rows;
  }

  ThreadPool threads_{2};
  HostDevice device_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(BackEnds, ExpertValues, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "cpu" : "reference"; });

// exp of the logits is 1 2 4 1, 3 3 1 1, 1 1 1 5: all sum to 8.
std::vector<double> logits_of_eighths() {
  std::vector<double> logits;
  for (const double weight : {1., 2., 4., 1., 3., 3., 1., 1., 1., 1., 1., 5.})
    logits.push_back(std::log(weight) + 0.5);
  return logits;
}

TEST_P(ExpertValues, OfRoutingAreTheLargestProbabilities) {
  const RouteTokens call = routed(4, 2, logits_of_eighths());
  EXPECT_EQ(values(call.choices), (std::vector<double>{2, 1, 0, 1, 3, 0}));
  expect_values(call.weights, {0.5, 0.25, 0.375, 0.375, 0.625, 0.125});
  EXPECT_EQ(values(call.counts), (std::vector<double>{2, 2, 1, 1}));
  // Expert 0: tokens 1, 2; 1: tokens 0, 1; 2: token 0; 3: token 2.
  const ExpertRows rows = sorted(call.choices, 0, 4);
  EXPECT_EQ(values(rows.first_rows), (std::vector<double>{0, 2, 4, 5, 6}));
  EXPECT_EQ(values(rows.sources), (std::vector<double>{1, 2, 0, 1, 0, 2}));
  EXPECT_EQ(values(rows.places), (std::vector<double>{4, 2, 0, 3, 5, 1}));
  // n L = 4 / 6 (2 5/8 + 2 6/8 + 6/8 + 7/8)
  expect_values(call.balance, {100 + 4.0 / 6 * (10 + 12 + 6 + 7) / 8});
}

TEST_P(ExpertValues, OfRowsAreThoseOfTheExpertsThatAreHere) {
  const Tensor choices = int32({3, 2}, {2, 1, 0, 1, 3, 0});
  const ExpertRows rows = sorted(choices, 1, 2);  // 1: tokens 0, 1; 2: token 0; room for 6
  EXPECT_EQ(values(rows.first_rows), (std::vector<double>{0, 2, 3}));
  EXPECT_EQ(values(rows.sources), (std::vector<double>{0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(values(rows.places), (std::vector<double>{2, 0, -1, 1, -1, -1}));
  const ExpertRows last = sorted(choices, 3, 1);
  EXPECT_EQ(values(last.first_rows), (std::vector<double>{0, 1}));
  EXPECT_EQ(values(last.sources), (std::vector<double>{2, 0, 0}));
  EXPECT_EQ(values(last.places), (std::vector<double>{-1, -1, -1, -1, 0, -1}));
}

// Rows of no token, which may hold anything.
TEST_P(ExpertValues, OfRowsThatAreNotUsedAreNeitherReadNorWritten) {
  const double bad = std::nan("");
  const Tensor used = int32({1}, {2});
  const auto unwritten = [] { return fp32({3, 2}, {9, 9, 9, 9, 9, 9}); };
  const Tensor x = fp32({3, 2}, {1, -2, 3, 4, bad, bad});
  const Tensor up = fp32({3, 2}, {5, 6, 7, 8, bad, bad});
  const Tensor y = unwritten(), gated = unwritten(), dx = unwritten(), dup = unwritten();
  run(ActivationForward{.y = y, .x = x, .kind = ActivationKind::kRelu, .used = used});
  EXPECT_EQ(values(y), (std::vector<double>{1, 0, 3, 4, 9, 9}));
  run(ActivationForward{.y = gated, .x = x, .up = up, .kind = ActivationKind::kRelu, .used = used});
  EXPECT_EQ(values(gated), (std::vector<double>{5, 0, 21, 32, 9, 9}));
  run(ActivationBackward{.dx = dx,
                         .dup = dup,
                         .dy = fp32({3, 2}, {1, 1, 2, 1, bad, bad}),
                         .x = x,
                         .up = up,
                         .kind = ActivationKind::kRelu,
                         .used = used});
  EXPECT_EQ(values(dx), (std::vector<double>{5, 0, 14, 8, 9, 9}));
  EXPECT_EQ(values(dup), (std::vector<double>{1, 0, 6, 4, 9, 9}));
  const Tensor rows = unwritten();
  run(EmbeddingForward{.y = rows, .table = up, .ids = int32({3}, {1, 0, 2}), .used = used});
  EXPECT_EQ(values(rows), (std::vector<double>{7, 8, 5, 6, 9, 9}));
}

TEST_P(ExpertValues, OfChoicesThatAreElsewhereAddNothing) {
  const double bad = std::nan("");
  const Tensor rows = fp32({3, 2}, {1, 2, 3, 4, bad, bad});
  const Tensor places = int32({3, 2}, {-1, 0, 1, -1, -1, -1});
  const Tensor weights = fp32({3, 2}, {bad, 10, 0.5, bad, 1, 1});
  const Tensor y = host_tensor(DType::kF32, {3, 2});
  run(CombineExperts{.y = y, .rows = rows, .places = places, .weights = weights});
  EXPECT_EQ(values(y), (std::vector<double>{10, 20, 1.5, 2, 0, 0}));
  const Tensor drows = fp32({3, 2}, {9, 9, 9, 9, 9, 9});
  const Tensor dweights = host_tensor(DType::kF32, {3, 2});
  run(CombineExpertsBackward{.drows = drows,
                             .dweights = dweights,
                             .dy = fp32({3, 2}, {1, -1, 3, 2, 5, 5}),
                             .rows = rows,
                             .places = places,
                             .weights = weights});
  EXPECT_EQ(values(drows), (std::vector<double>{10, -10, 1.5, 1, 9, 9}));
  EXPECT_EQ(values(dweights), (std::vector<double>{0, -1, 17, 0, 0, 0}));
}

TEST_P(ExpertValues, OfNormalizedRoutingSumToOne) {
  const RouteTokens call = routed(4, 2, logits_of_eighths(), /*normalized=*/true);
  EXPECT_EQ(values(call.choices), (std::vector<double>{2, 1, 0, 1, 3, 0}));
  expect_values(call.weights, {2.0 / 3, 1.0 / 3, 0.5, 0.5, 5.0 / 6, 1.0 / 6});
}

TEST_P(ExpertValues, OfTheBalanceAreOneForEqualShares) {
  // Each token prefers another expert by the same amount.
  const RouteTokens call = routed(3, 1, {9, 1, 1, 1, 9, 1, 1, 1, 9});
  expect_values(call.balance, {100 + 3});
  const RouteTokens all = routed(3, 3, {2, 0, 1, -4, 5, 3});
  expect_values(all.balance, {100 + 2});
}

TEST_P(ExpertValues, TakeTheLowerOfEqualExperts) {
  EXPECT_EQ(values(routed(4, 3, {7, 7, 7, 7}).choices), (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(values(routed(4, 2, {1, 7, 0, 7}).choices), (std::vector<double>{1, 3}));
  EXPECT_EQ(values(routed(3, 2, {-0.0, 0.0, -1}).choices), (std::vector<double>{0, 1}));
}

// The numbers of experts and the rows stay valid; weights show what was wrong.
TEST_P(ExpertValues, HaveValidExpertsWhereLogitsAreNoNumbers) {
  const double bad = std::nan("");
  const double infinity = std::numeric_limits<double>::infinity();
  for (const bool normalized : {false, true}) {
    const RouteTokens call = routed(
        4, 3, {bad, 1, 2, bad, bad, bad, bad, bad, infinity, 1, -infinity, bad, 0, 1, bad, 2},
        normalized);
    EXPECT_EQ(values(call.choices), (std::vector<double>{2, 1, 0, 0, 1, 2, 0, 1, 2, 3, 1, 0}));
    EXPECT_EQ(values(call.counts), (std::vector<double>{4, 4, 3, 1}));
    for (const double weight : values(call.weights)) EXPECT_TRUE(std::isnan(weight));
    EXPECT_TRUE(std::isnan(value_at(call.balance, 0)));
  }
  // -infinity is a logit like others: probability 0.
  const RouteTokens never = routed(3, 3, {-infinity, 0, -infinity});
  EXPECT_EQ(values(never.choices), (std::vector<double>{1, 0, 2}));
  expect_values(never.weights, {1, 0, 0});
}

// Logits whose sigmoids are these.
std::vector<double> logits_of(std::vector<double> sigmoids) {
  for (double& one : sigmoids) one = std::log(one / (1 - one));
  return sigmoids;
}

TEST_P(ExpertValues, OfSigmoidsAreChosenWithABiasThatIsNotInTheWeights) {
  RouteTokens call = routed(4, 2, logits_of({0.5, 0.25, 0.75, 0.125, 0.2, 0.2, 0.2, 0.4}));
  call.score = ScoreKind::kSigmoid;
  call.bias = fp32({4}, {0, 0.375, 0, 0.375});
  call.factor = 2;
  run(call);
  EXPECT_EQ(values(call.choices), (std::vector<double>{2, 1, 3, 1}));
  expect_values(call.weights, {1.5, 0.5, 0.8, 0.4});
  EXPECT_EQ(values(call.counts), (std::vector<double>{0, 2, 1, 1}));
  call.normalized = true;
  call.balance = tensor_of(DType::kF64, {1}, std::vector<double>{0});
  run(call);
  expect_values(call.weights, {1.5, 0.5, 4.0 / 3, 2.0 / 3});
  // n L = 4 / 4 of the shares s / sum of s.
  const double first = 0.5 + 0.25 + 0.75 + 0.125;
  expect_values(call.balance, {(2 * 0.25 + 0.75 + 0.125) / first + 2 * 0.2 + 0.2 + 0.4});
}

// Three groups of two experts: the largest score is in the second, the largest sum in the third.
TEST_P(ExpertValues, OfGroupsAreThoseOfTheBest) {
  RouteTokens call = routed(6, 2, logits_of({0.5, 0.4, 0.9, 0.1, 0.6, 0.7}));
  call.score = ScoreKind::kSigmoid;
  const auto choices = [&](ExpertGroups groups) {
    call.groups = groups;
    run(call);
    return values(call.choices);
  };
  EXPECT_EQ(choices({}), (std::vector<double>{2, 5}));
  EXPECT_EQ(choices({3, 1, 1}), (std::vector<double>{2, 3}));
  EXPECT_EQ(choices({3, 1, 2}), (std::vector<double>{5, 4}));
  EXPECT_EQ(choices({3, 2, 1}), (std::vector<double>{2, 5}));
  EXPECT_EQ(choices({2, 1, 3}), (std::vector<double>{2, 0}));  // 1.8, 1.4
  call.bias = fp32({6}, {0.5, 0.5, 0, 0, 0, 0});
  EXPECT_EQ(choices({3, 1, 2}), (std::vector<double>{0, 1}));
  expect_values(call.weights, {0.5, 0.4});
}

// Of a softmax a group has the sum of its probabilities, or of logits if weights are normalized.
TEST_P(ExpertValues, OfGroupsOfASoftmaxAreProbabilitiesOrLogits) {
  RouteTokens call = routed(4, 1, {3, -5, 1, 1});
  call.groups = {2, 1, 2};
  run(call);
  EXPECT_EQ(values(call.choices), (std::vector<double>{0}));
  call.normalized = true;
  run(call);
  EXPECT_EQ(values(call.choices), (std::vector<double>{2}));
}

TEST_P(ExpertValues, OfAZLossAreSquaresOfLogSums) {
  const double first = std::log(4.0), second = std::log(2.0);
  const Tensor logits = fp32({2, 4}, {0, 0, 0, 0, -second, -second, -second, -second});
  const Tensor sum = tensor_of(DType::kF64, {1}, std::vector<double>{100});
  run(RouterZLoss{.sum = sum, .logits = logits});
  expect_values(sum, {100 + first * first + second * second});
  const Tensor dlogits = host_tensor(DType::kF32, {2, 4});
  run(RouterZLossBackward{
      .dlogits = dlogits, .logits = logits, .scale = fp32({1}, {0.5}), .factor = 4});
  expect_values(dlogits, {first, first, first, first, second, second, second, second});
}

TEST_P(ExpertValues, OfAnExcessAreChoicesAboveTheMean) {
  const Tensor excess = fp32({6}, {100, 0, 0, 0, 0, -100});
  // 6 and 4 have the divisor 2: 3 for each choice, less 2 for each of 3 tokens.
  run(ExcessChoices{.excess = excess,
                    .choices = int32({3, 4}, {0, 1, 2, 3, 3, 0, 4, 1, 0, 3, 2, 1})});
  EXPECT_EQ(values(excess), (std::vector<double>{103, 3, 0, 3, -3, -106}));
}

// 4 positions of 2 samples, in rows 0 4 1 5 2 6 3 7. All choose expert 1 and one of the others.
TEST_P(ExpertValues, OfLimitedChoicesAreTheBestOrTheFirst) {
  LimitChoices call{.kept = int32({8, 2}, std::vector<double>(16, -9)),
                    .choices = int32({8, 2}, {1, 0, 1, 2, 0, 1, 1, 2, 1, 2, 1, 2, 1, 0, 1, 2}),
                    .weights = fp32({8, 2}, {5, 1, 6, 1, 9, 7, 7, 2, 5, 3, 8, 4, 5, 1, 6, 5}),
                    .experts = 3,
                    .capacity = 4,
                    .rows = {.samples = 2}};
  run(call);
  // Of expert 1 the weights 8, 7, 7 stay, and of rows 1 and 7 with 6 the first; of expert 2 the
  // four largest.
  EXPECT_EQ(values(call.kept),
            (std::vector<double>{-1, 0, 1, -1, 0, 1, 1, 2, -1, 2, 1, 2, -1, 0, -1, 2}));
  call.weights = {};
  run(call);
  EXPECT_EQ(values(call.kept),
            (std::vector<double>{1, 0, 1, 2, 0, -1, -1, 2, 1, 2, 1, 2, -1, 0, -1, -1}));
  // On 2 ranks: positions 0 and 3 of both samples, then 1 and 2.
  call.rows.ranks = 2;
  call.capacity = 1;
  run(call);
  EXPECT_EQ(values(call.kept),
            (std::vector<double>{1, 0, -1, -1, -1, -1, -1, -1, -1, 2, -1, -1, -1, -1, -1, -1}));
  // Choices that are dropped count for no expert: 3, 1 and 1 of them, times 3, less 5.
  const Tensor excess = fp32({3}, {0, 0, 10});
  run(ExcessChoices{
      .excess = excess, .choices = int32({3, 2}, {0, 1, 0, -1, 2, 0}), .limited = true});
  EXPECT_EQ(values(excess), (std::vector<double>{4, -2, 8}));
}

TEST_P(ExpertValues, OfTheGradientOfLogitsAreThoseOfASoftmax) {
  const RouteTokens forward = routed(4, 2, logits_of_eighths());
  RouteBackward call{.dlogits = host_tensor(DType::kF32, {3, 4}),
                     .dweights = fp32({3, 2}, {1, 0, 0, 1, 0, 0}),
                     .logits = forward.logits,
                     .choices = forward.choices,
                     .counts = forward.counts};
  run(call);
  // p (d - p): of expert 2 of token 0, and of expert 1 of token 1.
  expect_values(call.dlogits, {-0.5 / 8, -0.5 / 4, 0.25, -0.5 / 8,  //
                               -0.375 * 0.375, 0.375 * 0.625, -0.375 / 8, -0.375 / 8, 0, 0, 0, 0});
  // 2/3 1/3 of the difference; the others do not matter.
  call.normalized = true;
  run(call);
  expect_values(call.dlogits, {0, -2.0 / 9, 2.0 / 9, 0, -0.25, 0.25, 0, 0, 0, 0, 0, 0});
  // The balance alone: counts 2 2 1 1, factor 3/2 2 4/6 = 2.
  call.dweights = {};
  call.scale = fp32({1}, {2});
  call.balance_factor = 1.5;
  run(call);
  const double mean = (2 * 1 + 2 * 2 + 4 + 1) / 8.0;  // of token 0
  expect_values(call.dlogits.slice(0, 0, 1),
                {2 * (2 - mean) / 8, 2 * (2 - mean) / 4, 2 * (1 - mean) / 2, 2 * (1 - mean) / 8});
}

TEST_P(ExpertValues, OfACombinationAreWeightedSumsOfTheRowsOfATokenInAnyOrder) {
  const Tensor y = host_tensor(DType::kF32, {2, 2});
  const Tensor rows = fp32({4, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Tensor places = int32({2, 2}, {3, 0, 1, 2});
  const Tensor weights = fp32({2, 2}, {2, 10, 0.5, -1});
  run(CombineExperts{.y = y, .rows = rows, .places = places, .weights = weights});
  EXPECT_EQ(values(y), (std::vector<double>{24, 36, -3.5, -4}));
  run(CombineExperts{.y = y, .rows = rows, .places = places});
  EXPECT_EQ(values(y), (std::vector<double>{8, 10, 8, 10}));
  const Tensor drows = host_tensor(DType::kF32, {4, 2});
  const Tensor dweights = host_tensor(DType::kF32, {2, 2});
  run(CombineExpertsBackward{.drows = drows,
                             .dweights = dweights,
                             .dy = fp32({2, 2}, {1, -1, 3, 2}),
                             .rows = rows,
                             .places = places,
                             .weights = weights});
  EXPECT_EQ(values(drows), (std::vector<double>{10, -10, 1.5, 1, -3, -2, 2, -2}));
  EXPECT_EQ(values(dweights), (std::vector<double>{-1, -1, 17, 27}));
}

TEST_P(ExpertValues, OfLinearsAreProductsWithTheMatrixOfTheExpertOfARow) {
  const Tensor first_rows = int32({4}, {0, 1, 1, 3});
  const WeightView weight{.tensor = fp32({6, 2}, {1, 2, 3, 4, 9, 9, 9, 9, -1, 0, 0, 5}),
                          .out = 2,
                          .in = 2,
                          .dtype = DType::kF32,
                          .matrices = 3};
  const Tensor x = fp32({3, 2}, {1, 1, 2, 3, 0, 1});
  const Tensor y = host_tensor(DType::kF32, {3, 2});
  run(LinearForward{.y = y, .x = x, .weight = weight, .first_rows = first_rows});
  EXPECT_EQ(values(y), (std::vector<double>{3, 7, -2, 15, 0, 5}));
  run(LinearBackwardInput{.dx = y, .dy = x, .weight = weight, .first_rows = first_rows});
  EXPECT_EQ(values(y), (std::vector<double>{4, 6, -2, 15, 0, 5}));
  for (const bool overwrites : {false, true}) {
    const Tensor dweight = fp32({6, 2}, std::vector<double>(12, 100));
    run(LinearBackwardWeight{.dweight = dweight,
                             .dy = fp32({3, 2}, {1, 0, 2, 1, 1, 4}),
                             .x = x,
                             .overwrites = overwrites,
                             .first_rows = first_rows});
    std::vector<double> wanted{1, 1, 0, 0, 0, 0, 0, 0, 4, 7, 2, 7};
    for (double& number : wanted) number += overwrites ? 0 : 100;
    EXPECT_EQ(values(dweight), wanted) << overwrites;
  }
}

}  // namespace
}  // namespace piton::test
