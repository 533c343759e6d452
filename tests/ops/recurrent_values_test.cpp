// A text in one pass and in several, documents of a sample and samples apart, and numbers
// worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/threads.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

class Recurrent : public ::testing::TestWithParam<bool> {
 protected:
  void run(const KernelCall& call) { kernels_->run(call, *stream_); }

  // Texts of rows of this many tokens, each behind as many others.
  static TextRows texts(const std::vector<double>& rows, const std::vector<double>& before,
                        const std::vector<double>& slots) {
    std::vector<double> begins{0};
    std::vector<double> lengths;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      begins.push_back(begins.back() + rows[i]);
      lengths.push_back(before[i] + rows[i]);
    }
    const auto b = std::ssize(rows);
    return {.begins = tensor_of(DType::kI32, {b + 1}, begins),
            .lengths = tensor_of(DType::kI32, {b}, lengths),
            .slots = tensor_of(DType::kI32, {b}, slots)};
  }

  DeltaRuleInput input(std::int64_t n, std::int64_t samples) {
    return {.q = source_.normal(DType::kF32, {n, 2, 6}),
            .k = source_.normal(DType::kF32, {n, 2, 6}),
            .v = source_.normal(DType::kF32, {n, 4, 5}),
            .decay = source_.normal(DType::kF32, {n, 4}),
            .strength = source_.normal(DType::kF32, {n, 4}),
            .rate = source_.normal(DType::kF32, {4}, -1, 0.5),
            .bias = source_.normal(DType::kF32, {4}),
            .samples = samples};
  }

  static DeltaRuleInput rows_of(DeltaRuleInput in, std::int64_t begin, std::int64_t size) {
    for (Tensor* one : {&in.q, &in.k, &in.v, &in.decay, &in.strength})
      *one = one->slice(0, begin, size);
    in.samples = 1;
    in.segments = {};
    return in;
  }

  ThreadPool threads_{2};
  HostDevice device_;
  std::unique_ptr<Stream> stream_ = device_.make_stream();
  std::unique_ptr<Kernels> kernels_ =
      GetParam() ? make_cpu_kernels(threads_, "") : make_reference_kernels();
  TensorSource source_{5};
};

TEST_P(Recurrent, ATextInPartsHasTheRowsOfTheWhole) {
  const std::int64_t n = 11, c = 9;
  const Tensor x = source_.normal(DType::kF32, {n, c});
  const Tensor weight = source_.normal(DType::kF32, {c, 4});
  const Tensor y = source_.unwritten(DType::kF32, {n, c});
  run(ConvolutionForward{.y = y, .x = x, .weight = weight});
  const DeltaRuleInput in = input(n, 1);
  const Tensor out = source_.unwritten(DType::kF32, {n, 4, 5});
  run(DeltaRuleForward{.out = out, .in = in});
  // What other texts left in the states is not read.
  const Tensor state = source_.unwritten(DType::kF32, {3, 4, 6, 5});
  const Tensor rows = source_.unwritten(DType::kF32, {3, 3, c});
  std::int64_t begin = 0;
  for (const std::int64_t size : {1, 1, 6, 2, 1}) {
    const TextRows text = texts({static_cast<double>(size)}, {static_cast<double>(begin)}, {2});
    const Tensor part = source_.unwritten(DType::kF32, {size, c});
    run(ConvolutionForward{
        .y = part, .x = x.slice(0, begin, size), .weight = weight, .texts = text, .state = rows});
    EXPECT_TRUE(close(part, y.slice(0, begin, size), tolerance(DType::kF32, 4))) << begin;
    const Tensor some = source_.unwritten(DType::kF32, {size, 4, 5});
    run(DeltaRuleForward{
        .out = some, .in = rows_of(in, begin, size), .texts = text, .state = state});
    EXPECT_TRUE(close(some, out.slice(0, begin, size), tolerance(DType::kF32, 32))) << begin;
    begin += size;
  }
  EXPECT_EQ(begin, n);
  EXPECT_TRUE(std::isnan(value_at(state, 0))) << "the state of another text";
}

TEST_P(Recurrent, DocumentsOfASampleAreSamples) {
  const std::int64_t n = 12;
  DeltaRuleInput in = input(n, 2);
  in.segments =
      tensor_of(DType::kI32, {n}, std::vector<double>{0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3});
  const Tensor out = source_.unwritten(DType::kF32, {n, 4, 5});
  run(DeltaRuleForward{.out = out, .in = in});
  for (const auto& [begin, size] : {std::pair{0, 1}, {1, 3}, {4, 2}, {6, 3}, {9, 3}}) {
    const Tensor part = source_.unwritten(DType::kF32, {size, 4, 5});
    run(DeltaRuleForward{.out = part, .in = rows_of(in, begin, size)});
    EXPECT_TRUE(bit_equal(part, out.slice(0, begin, size))) << begin;
  }
}

// No chunk has rows of two documents.
TEST_P(Recurrent, WhatIsNotFiniteStaysInItsDocument) {
  const std::int64_t n = 2 * 140;
  DeltaRuleInput in = input(n, 2);
  std::vector<double> ids(static_cast<std::size_t>(n), 0);
  for (std::size_t row = 30; row < 140; ++row) ids[row] = row < 110 ? 1 : 2;
  in.segments = tensor_of(DType::kI32, {n}, ids);
  const Tensor dout = source_.normal(DType::kF32, {n, 4, 5});
  const auto gradients = [&] {
    const DeltaRuleBackward call{.dq = source_.unwritten(DType::kF32, in.q.shape()),
                                 .dk = source_.unwritten(DType::kF32, in.k.shape()),
                                 .dv = source_.unwritten(DType::kF32, in.v.shape()),
                                 .ddecay = source_.unwritten(DType::kF32, in.decay.shape()),
                                 .dstrength = source_.unwritten(DType::kF32, in.strength.shape()),
                                 .dout = dout,
                                 .in = in};
    run(call);
    return std::vector<Tensor>{call.dq, call.dk, call.dv, call.ddecay, call.dstrength};
  };
  const std::vector<Tensor> whole = gradients();
  for (const Tensor* one :
       std::initializer_list<const Tensor*>{&dout, &in.q, &in.k, &in.v, &in.decay, &in.strength}) {
    const std::int64_t place = one->elements() / n * 100;
    const double kept = value_at(*one, place);
    set_value(*one, place, std::nan(""));
    const std::vector<Tensor> some = gradients();
    for (std::size_t i = 0; i < some.size(); ++i) {
      for (const auto& [begin, size] : {std::pair{0, 30}, {110, 30}, {140, 140}})
        EXPECT_TRUE(bit_equal(some[i].slice(0, begin, size), whole[i].slice(0, begin, size))) << i;
    }
    EXPECT_TRUE(std::ranges::any_of(some, [](const Tensor& gradient) {
      return std::ranges::any_of(values(gradient), [](double x) { return std::isnan(x); });
    }));
    set_value(*one, place, kept);
  }
}

// One key and one value of one channel: q and k are 1 or -1, and d of the first row is v / 2.
TEST_P(Recurrent, HasTheNumbersOfItsFormula) {
  const auto column = [](std::vector<double> numbers) {
    return tensor_of(DType::kF32, {2, 1, 1}, numbers);
  };
  const auto gate = [](std::vector<double> numbers) {
    return tensor_of(DType::kF32, {2, 1}, numbers);
  };
  const Tensor zero = tensor_of(DType::kF32, {1}, std::vector<double>{0});
  const DeltaRuleInput in{.q = column({2, 3}),
                          .k = column({5, -4}),
                          .v = column({6, 1}),
                          .decay = gate({1, 0}),
                          .strength = gate({0, 0}),
                          .rate = zero,
                          .bias = zero};
  const Tensor out = source_.unwritten(DType::kF32, {2, 1, 1});
  run(DeltaRuleForward{.out = out, .in = in});
  EXPECT_NEAR(value_at(out, 0), 3, 1e-6);
  // keep = exp(-log 2) = 1/2: u = -3/2, d = (1 + 3/2) / 2, S = 3/2 - 5/4.
  EXPECT_NEAR(value_at(out, 1), 0.25, 1e-6);
}

INSTANTIATE_TEST_SUITE_P(BackEnds, Recurrent, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "cpu" : "reference"; });

}  // namespace
}  // namespace piton::test
