// A text in one pass and in several, documents of a sample and samples apart, and numbers
// worked out by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/threads.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "kernels/reference/kernels.h"
#include "support/compare.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

constexpr StateRule kRules[] = {StateRule::kDelta, StateRule::kStateSpace};

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

  // body(begin, size, texts of the slot 2): parts of one text, one after another.
  static void for_each_part(
      const std::vector<std::int64_t>& sizes,
      const std::function<void(std::int64_t, std::int64_t, const TextRows&)>& body) {
    std::int64_t begin = 0;
    for (const std::int64_t size : sizes) {
      body(begin, size, texts({static_cast<double>(size)}, {static_cast<double>(begin)}, {2}));
      begin += size;
    }
  }

  DeltaRuleInput input(std::int64_t n, std::int64_t samples, StateRule rule) {
    const bool corrects = rule == StateRule::kDelta;
    return {.q = source_.normal(DType::kF32, {n, 2, 6}),
            .k = source_.normal(DType::kF32, {n, 2, 6}),
            .v = source_.normal(DType::kF32, {n, 4, 5}),
            .decay = source_.normal(DType::kF32, {n, 4}),
            .strength = corrects ? source_.normal(DType::kF32, {n, 4}) : Tensor(),
            .rate = source_.normal(DType::kF32, {4}, -1, 0.5),
            .bias = source_.normal(DType::kF32, {4}),
            .skip = corrects ? Tensor() : source_.normal(DType::kF32, {4}),
            .samples = samples,
            .rule = rule};
  }

  static DeltaRuleInput rows_of(DeltaRuleInput in, std::int64_t begin, std::int64_t size) {
    for (Tensor* one : {&in.q, &in.k, &in.v, &in.decay, &in.strength})
      if (one->defined()) *one = one->slice(0, begin, size);
    in.samples = 1;
    in.segments = {};
    return in;
  }

  DeltaRuleBackward backward(const DeltaRuleInput& in, const Tensor& dout) {
    const bool corrects = in.rule == StateRule::kDelta;
    const auto gradient = [&](const Tensor& of) {
      return source_.unwritten(DType::kF32, of.shape());
    };
    return {.dq = gradient(in.q),
            .dk = gradient(in.k),
            .dv = gradient(in.v),
            .ddecay = gradient(in.decay),
            .dstrength = corrects ? gradient(in.strength) : Tensor(),
            .dout = dout,
            .in = in};
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
  const Tensor bias = source_.normal(DType::kF32, {c});
  const Tensor y = source_.unwritten(DType::kF32, {n, c});
  run(ConvolutionForward{.y = y, .x = x, .weight = weight, .bias = bias});
  // What other texts left in the states is not read.
  const Tensor rows = source_.unwritten(DType::kF32, {3, 3, c});
  for_each_part({1, 1, 6, 2, 1}, [&](std::int64_t begin, std::int64_t size, const TextRows& text) {
    const Tensor part = source_.unwritten(DType::kF32, {size, c});
    run(ConvolutionForward{.y = part,
                           .x = x.slice(0, begin, size),
                           .weight = weight,
                           .bias = bias,
                           .texts = text,
                           .state = rows});
    EXPECT_TRUE(close(part, y.slice(0, begin, size), tolerance(DType::kF32, 4))) << begin;
  });
}

TEST_P(Recurrent, ATextInPartsHasTheStatesOfTheWhole) {
  for (const StateRule rule : kRules) {
    const std::int64_t n = 181;
    const DeltaRuleInput in = input(n, 1, rule);
    const Tensor out = source_.unwritten(DType::kF32, {n, 4, 5});
    run(DeltaRuleForward{.out = out, .in = in});
    const Tensor state = source_.unwritten(DType::kF32, {3, 4, 6, 5});
    for_each_part(
        {1, 1, 6, 2, 1, 70, 100}, [&](std::int64_t begin, std::int64_t size, const TextRows& text) {
          const Tensor some = source_.unwritten(DType::kF32, {size, 4, 5});
          run(DeltaRuleForward{
              .out = some, .in = rows_of(in, begin, size), .texts = text, .state = state});
          EXPECT_TRUE(close(some, out.slice(0, begin, size), tolerance(DType::kF32, 32))) << begin;
        });
    EXPECT_TRUE(std::isnan(value_at(state, 0))) << "the state of another text";
  }
}

TEST_P(Recurrent, DocumentsOfASampleAreSamples) {
  for (const StateRule rule : kRules) {
    const std::int64_t n = 12;
    DeltaRuleInput in = input(n, 2, rule);
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
}

// No chunk has rows of two documents.
TEST_P(Recurrent, WhatIsNotFiniteStaysInItsDocument) {
  for (const StateRule rule : kRules) {
    const std::int64_t n = 2 * 140;
    DeltaRuleInput in = input(n, 2, rule);
    std::vector<double> ids(static_cast<std::size_t>(n), 0);
    for (std::size_t row = 30; row < 140; ++row) ids[row] = row < 110 ? 1 : 2;
    in.segments = tensor_of(DType::kI32, {n}, ids);
    const Tensor dout = source_.normal(DType::kF32, {n, 4, 5});
    const auto results = [&] {
      const Tensor out = source_.unwritten(DType::kF32, in.v.shape());
      run(DeltaRuleForward{.out = out, .in = in});
      const DeltaRuleBackward call = backward(in, dout);
      run(call);
      std::vector<Tensor> all{out, call.dq, call.dk, call.dv, call.ddecay};
      if (call.dstrength.defined()) all.push_back(call.dstrength);
      return all;
    };
    const std::vector<Tensor> whole = results();
    for (const Tensor* one : std::initializer_list<const Tensor*>{&dout, &in.q, &in.k, &in.v,
                                                                  &in.decay, &in.strength}) {
      if (!one->defined()) continue;
      const std::int64_t place = one->elements() / n * 100;
      const double kept = value_at(*one, place);
      set_value(*one, place, std::nan(""));
      const std::vector<Tensor> some = results();
      for (std::size_t i = 0; i < some.size(); ++i) {
        for (const auto& [begin, size] : {std::pair{0, 30}, {110, 30}, {140, 140}})
          EXPECT_TRUE(bit_equal(some[i].slice(0, begin, size), whole[i].slice(0, begin, size)))
              << i;
      }
      EXPECT_TRUE(std::ranges::any_of(some, [](const Tensor& result) {
        return std::ranges::any_of(values(result), [](double x) { return std::isnan(x); });
      }));
      set_value(*one, place, kept);
    }
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

// A state space of one channel, rate 0 and a bias of log 3: the steps are log 2 and log 4, so keep
// of the second row is 1/4. With l = log 2:
//
//   S = 5 (6 l) = 30 l, then 30 l / 4 - 4 (1) 2 l = -l / 2      out = 2 (30 l) + 6 / 2, 3 (-l / 2)
//   + 1 / 2
//
// For dout 1 and 2 the gradient of S is 6 after the second row, 2 + 6 / 4 = 7/2 after the first;
// that of d is -24 and 35/2; that of log keep 6 (30 l / 4) = 45 l and 0. So that of the steps is
// -24 (1) - 45 l and 35/2 (6) = 105, times sigmoid(log 3) = 3/4 and sigmoid(0) = 1/2 that of
// decays.
TEST_P(Recurrent, HasTheNumbersOfAStateSpace) {
  const double l = std::log(2.0);
  const double log_three = std::log(3.0);
  const auto column = [](std::vector<double> numbers) {
    return tensor_of(DType::kF32, {2, 1, 1}, numbers);
  };
  const auto number = [](double x) { return tensor_of(DType::kF32, {1}, std::vector<double>{x}); };
  const DeltaRuleInput in{
      .q = column({2, 3}),
      .k = column({5, -4}),
      .v = column({6, 1}),
      .decay = tensor_of(DType::kF32, {2, 1}, std::vector<double>{-log_three, 0}),
      .rate = number(0),
      .bias = number(log_three),
      .skip = number(0.5),
      .rule = StateRule::kStateSpace};
  const auto expect = [](const Tensor& actual, const std::vector<double>& wanted) {
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(value_at(actual, static_cast<std::int64_t>(i)), wanted[i], 1e-4) << i;
  };
  const Tensor out = source_.unwritten(DType::kF32, {2, 1, 1});
  run(DeltaRuleForward{.out = out, .in = in});
  expect(out, {60 * l + 3, -1.5 * l + 0.5});
  DeltaRuleBackward call = backward(in, column({1, 2}));
  call.drate = number(1);
  call.dbias = number(1);
  call.dskip = number(1);
  run(call);
  expect(call.dq, {30 * l, -l});
  expect(call.dk, {3.5 * 6 * l, 6 * 2 * l});
  expect(call.dv, {17.5 * l + 0.5, -24 * 2 * l + 1});
  const double ddecay = 0.75 * (-24 - 45 * l);
  expect(call.ddecay, {52.5, ddecay});
  expect(call.drate, {1 + 45 * l * (-2 * l)});
  expect(call.dbias, {1 + 52.5 + ddecay});
  expect(call.dskip, {1 + 6.0 + 2});
}

// Value heads that share keys are divided among threads, and their gradients of keys are summed.
TEST(RecurrentThreads, ACallHasTheSameBitsOnAnyNumber) {
  const std::int64_t n = 2 * 70, heads = 20, dk = 24, dv = 9;
  for (const StateRule rule : kRules) {
    const auto results = [&](int count) {
      ThreadPool threads(count);
      HostDevice device;
      const auto stream = device.make_stream();
      const auto kernels = make_cpu_kernels(threads, "");
      TensorSource source(6);
      const auto normal = [&](const Shape& shape) { return source.normal(DType::kF32, shape); };
      const bool corrects = rule == StateRule::kDelta;
      const DeltaRuleInput in{.q = normal({n, 1, dk}),
                              .k = normal({n, 1, dk}),
                              .v = normal({n, heads, dv}),
                              .decay = normal({n, heads}),
                              .strength = corrects ? normal({n, heads}) : Tensor(),
                              .rate = normal({heads}),
                              .bias = normal({heads}),
                              .skip = corrects ? Tensor() : normal({heads}),
                              .samples = 2,
                              .rule = rule};
      const Tensor out = normal(in.v.shape());
      kernels->run(DeltaRuleForward{.out = out, .in = in}, *stream);
      const DeltaRuleBackward call{.dq = normal(in.q.shape()),
                                   .dk = normal(in.k.shape()),
                                   .dv = normal(in.v.shape()),
                                   .ddecay = normal(in.decay.shape()),
                                   .dstrength = corrects ? normal(in.decay.shape()) : Tensor(),
                                   .drate = normal({heads}),
                                   .dbias = normal({heads}),
                                   .dskip = corrects ? Tensor() : normal({heads}),
                                   .dout = normal(in.v.shape()),
                                   .in = in};
      kernels->run(call, *stream);
      std::vector<Tensor> all{out, call.dq, call.dk, call.dv, call.ddecay, call.drate, call.dbias};
      all.push_back(corrects ? call.dstrength : call.dskip);
      return all;
    };
    const std::vector<Tensor> one = results(1);
    for (const int threads : {2, 5}) {
      const std::vector<Tensor> several = results(threads);
      for (std::size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(bit_equal(several[i], one[i])) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(BackEnds, Recurrent, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "cpu" : "reference"; });

}  // namespace
}  // namespace piton::test
