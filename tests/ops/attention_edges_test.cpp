// Edge cases of attention: edges of tiles and windows, and extreme numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "attention_cases.h"
#include "base/threads.h"
#include "call_runner.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "support/compare.h"
#include "support/instruction_sets.h"

namespace piton::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class AttentionEdges : public ::testing::TestWithParam<const char*> {
 protected:
  AttentionEdges() : threads_(2) {}
  void SetUp() override {
    try {
      kernels_ = make_cpu_kernels(threads_, GetParam());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }

  ThreadPool threads_;
  HostDevice device_;
  std::unique_ptr<Kernels> kernels_;
};

TEST_P(AttentionEdges, OfTilesAndHeadsAgreeWithTheReference) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    expect_agreement(*kernels_, device_, attention_edge_cases({.dtype = dtype, .awkward = true}));
  }
}

// From one block of keys to the next a little, past the head room of a running softmax, and so far
// that earlier keys count for nothing.
TEST_P(AttentionEdges, OfScoresThatGrowAgreeWithTheReference) {
  constexpr std::int64_t kTokens = 300;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<CallCase> cases;
    for (const double growth : {0.02, 0.125, 1.0}) {
      TensorSource source(9);
      const Shape shape{1, kTokens, 2, 16};
      AttentionForward forward{.out = source.unwritten(dtype, shape),
                               .lse = source.unwritten(DType::kF32, {1, 2, kTokens}),
                               .q = source.normal(dtype, shape),
                               .k = source.normal(dtype, shape),
                               .v = source.normal(dtype, shape),
                               .scale = 0.25};
      for (std::int64_t row = 0; row < 2 * kTokens; ++row) {
        set_value(forward.q, row * 16, 4);
        set_value(forward.k, row * 16, growth * static_cast<double>(row / 2));
      }
      // A score of size s is a sum of as many terms.
      const auto highest = static_cast<std::int64_t>(growth * kTokens);
      cases.push_back({.name = "scores that grow by " + std::to_string(growth),
                       .call = forward,
                       .terms = kTokens + 16 * highest,
                       .narrowest = dtype});
    }
    expect_agreement(*kernels_, device_, cases);
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, AttentionEdges, ::testing::ValuesIn(kInstructionSets), set_name);

// 100 tokens, two query heads on one key head of width 16; the best instruction set of the machine.
class AttentionNumbers : public ::testing::TestWithParam<std::tuple<DType, std::int64_t>> {
 protected:
  static constexpr std::int64_t kRows = 100;

  AttentionNumbers()
      : dtype_(std::get<0>(GetParam())),
        threads_(1),
        kernels_(make_cpu_kernels(threads_, test::chosen_isa())),
        stream_(device_.make_stream()) {
    TensorSource source(8);
    const Shape queries{1, kRows, 2, 16};
    const Shape keys{1, kRows, 1, 16};
    forward_ = {.out = host_tensor(dtype_, queries),
                .lse = host_tensor(DType::kF32, {1, 2, kRows}),
                .q = source.normal(dtype_, queries),
                .k = source.normal(dtype_, keys),
                .v = source.normal(dtype_, keys),
                .scale = 0.25,
                .block_rows = std::get<1>(GetParam())};
    backward_ = {.dq = host_tensor(dtype_, queries),
                 .dk = host_tensor(dtype_, keys),
                 .dv = host_tensor(dtype_, keys),
                 .dout = source.normal(dtype_, queries),
                 .out = forward_.out,
                 .lse = forward_.lse,
                 .q = forward_.q,
                 .k = forward_.k,
                 .v = forward_.v,
                 .scale = 0.25,
                 .block_rows = forward_.block_rows};
  }

  // All outputs, each row-major, under today's masks.
  std::vector<std::vector<double>> run() {
    kernels_->run(forward_, *stream_);
    backward_.mask = forward_.mask;
    kernels_->run(backward_, *stream_);
    return {values(forward_.out), values(forward_.lse), values(backward_.dq), values(backward_.dk),
            values(backward_.dv)};
  }
  // Rows of `tensor` [1, rows, heads, 16] with a number that is not finite.
  static std::vector<bool> not_finite(const Tensor& tensor) {
    std::vector<bool> rows(kRows, false);
    for (std::int64_t row = 0; row < kRows; ++row) {
      for (const double value : values(tensor.select(1, row)))
        rows[row] = rows[row] || !std::isfinite(value);
    }
    return rows;
  }

  DType dtype_;
  ThreadPool threads_;
  HostDevice device_;
  std::unique_ptr<Kernels> kernels_;
  std::unique_ptr<Stream> stream_;
  AttentionForward forward_;
  AttentionBackward backward_;
};

TEST_P(AttentionNumbers, AreTheSameForEveryWindowThatHidesNothing) {
  const auto whole = run();
  for (const std::int64_t before :
       {kRows - 1, kRows, std::int64_t{1} << 33, std::numeric_limits<std::int64_t>::max()}) {
    forward_.mask.window_before = before;
    forward_.mask.window_after = before;
    EXPECT_EQ(run(), whole) << before;
  }
  forward_.mask = {.window_before = kRows - 2};  // the last row lacks one key
  EXPECT_NE(run(), whole);
}

TEST_P(AttentionNumbers, AreTheValuesWhereEachTokenSeesItself) {
  forward_.mask.window_before = 0;
  run();
  for (std::int64_t head = 0; head < 2; ++head) {
    EXPECT_TRUE(bit_equal(forward_.out.select(2, head), forward_.v.select(2, 0)));
  }
}

TEST_P(AttentionNumbers, AreZeroWhereNothingIsSeen) {
  forward_.mask.window_after = -3;  // tokens 0, 1 and 2 see nothing
  run();
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto out = values(forward_.out.select(1, row));
    const auto dq = values(backward_.dq.select(1, row));
    const auto zero = [](const std::vector<double>& x) {
      return std::all_of(x.begin(), x.end(), [](double one) { return one == 0; });
    };
    EXPECT_EQ(zero(out), row < 3) << row;
    EXPECT_EQ(value_at(forward_.lse, row) == -kInfinity, row < 3) << row;
    if (row < 3) {
      EXPECT_TRUE(zero(dq)) << row;
    }
  }
  for (const Tensor& gradient : {backward_.dq, backward_.dk, backward_.dv}) {
    EXPECT_EQ(not_finite(gradient), std::vector<bool>(kRows, false));
  }
}

// A score that is not a number reaches every row that sees it and no other; so does an infinite
// one.
TEST_P(AttentionNumbers, ThatAreNotFiniteReachWhoSeesThem) {
  constexpr std::int64_t kKey = 70;
  const auto clean = run();
  const Tensor queries = tensor_of(dtype_, forward_.q.shape(), values(forward_.q));
  for (const double poison : {kNan, kInfinity}) {
    const std::int64_t place = kKey * 16 + 5;
    const double was = value_at(forward_.k, place);
    set_value(forward_.k, place, poison);
    // So that the product is +infinity, not -infinity, which is as good as invisible.
    for (std::int64_t i = 0; i < kRows * 2; ++i) set_value(forward_.q, i * 16 + 5, 1);
    run();
    const std::vector<bool> reached = not_finite(forward_.out);
    for (std::int64_t row = 0; row < kRows; ++row)
      EXPECT_EQ(reached[row], row >= kKey) << poison << " in k, row " << row;
    set_value(forward_.k, place, was);
    assign(forward_.q, values(queries));

    const std::int64_t value_place = kKey * 16 + 3;
    const double value = value_at(forward_.v, value_place);
    set_value(forward_.v, value_place, poison);
    run();
    const std::vector<bool> seen = not_finite(forward_.out);
    for (std::int64_t row = kKey; row < kRows; ++row)
      EXPECT_TRUE(seen[row]) << poison << " in v, row " << row;
    set_value(forward_.v, value_place, value);

    const std::int64_t query_place = (kKey * 2 + 1) * 16 + 2;
    const double query = value_at(forward_.q, query_place);
    set_value(forward_.q, query_place, poison);
    kernels_->run(forward_, *stream_);
    const std::vector<bool> own = not_finite(forward_.out);
    for (std::int64_t row = 0; row < kRows; ++row)
      EXPECT_EQ(own[row], row == kKey) << poison << " in q, row " << row;
    set_value(forward_.q, query_place, query);

    run();
    const double gradient = value_at(backward_.dout, query_place);
    set_value(backward_.dout, query_place, poison);
    run();
    const std::vector<bool> dv = not_finite(backward_.dv);
    const std::vector<bool> dk = not_finite(backward_.dk);
    for (std::int64_t row = 0; row <= kKey; ++row)
      EXPECT_TRUE(dv[row] && dk[row]) << poison << " in dout, key " << row;
    EXPECT_TRUE(not_finite(backward_.dq)[kKey]);
    set_value(backward_.dout, query_place, gradient);
  }
  EXPECT_EQ(run(), clean);
}

INSTANTIATE_TEST_SUITE_P(Forms, AttentionNumbers,
                         ::testing::Combine(::testing::Values(DType::kF32, DType::kBF16,
                                                              DType::kF16),
                                            ::testing::Values(0, 32)),
                         [](const auto& info) {
                           return std::string(name(std::get<0>(info.param))) +
                                  (std::get<1>(info.param) > 0 ? "_triangle" : "");
                         });

}  // namespace
}  // namespace piton::test
