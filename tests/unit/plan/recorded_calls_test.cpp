// The operands with which calls of a plan are timed.
#include "plan/recorded_calls.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "device/host_device.h"
#include "kernels/reference/kernels.h"

namespace piton {
namespace {

// Looks at each call before it runs.
class SeenCalls final : public ForwardingKernels {
 public:
  SeenCalls(Kernels& inner, std::function<void(const KernelCall&)> see)
      : ForwardingKernels(inner), see_(std::move(see)) {}

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    see_(call);
    inner_.run(call, stream);
  }
  std::function<void(const KernelCall&)> see_;
};

void time_call(const KernelCall& call, std::function<void(const KernelCall&)> see) {
  HostDevice device;
  const auto world = make_single_world(device);
  const auto reference = make_reference_kernels();
  SeenCalls seen(*reference, std::move(see));
  Arena arena(device);
  const auto stream = device.make_stream();
  ThreadPool threads(1);
  SilentLog log;
  const Machine machine{.world = *world,
                        .device = device,
                        .kernels = seen,
                        .arena = arena,
                        .stream = *stream,
                        .threads = threads,
                        .log = log};
  EXPECT_GT(seconds_of_call(call, machine, /*cold=*/true), 0);
}

TEST(SecondsOfCall, AreOfAnUpdateThatIsApplied) {
  const auto of = [](std::int64_t n) { return host_tensor(DType::kF32, {n}); };
  int calls = 0;
  time_call(AdamwUpdate{.main = of(300'000),
                        .first = of(300'000),
                        .second = of(300'000),
                        .copy = host_tensor(DType::kBF16, {300'000}),
                        .gradient = of(300'000),
                        .scalars = of(kStepScalars)},
            [&](const KernelCall& call) {
              if (++calls > 1) return;  // later ones read what the first has written
              const auto& update = std::get<AdamwUpdate>(call);
              for (int i = 0; i < kStepScalars; ++i) {
                EXPECT_NE(update.scalars.data<float>()[i], 0) << i;
              }
              const auto* gradient = update.gradient.data<float>();
              const auto* copy = update.copy.data<BFloat16>();
              int negative = 0;
              for (std::int64_t i = 0; i < 300'000; ++i) {
                ASSERT_TRUE(std::abs(gradient[i]) >= 0.5F && std::abs(gradient[i]) < 1) << i;
                const float rounded = to_float(copy[i]);
                ASSERT_TRUE(std::abs(rounded) >= 0.5F && std::abs(rounded) < 1) << i;
                negative += gradient[i] < 0 ? 1 : 0;
              }
              EXPECT_NEAR(negative, 150'000, 3'000);
            });
  EXPECT_EQ(calls, 4);
}

TEST(SecondsOfCall, ReadIndicesThatAreValid) {
  time_call(EmbeddingForward{.y = host_tensor(DType::kF32, {4, 8}),
                             .table = host_tensor(DType::kF32, {2, 8}),
                             .ids = host_tensor(DType::kI32, {4})},
            [](const KernelCall& call) {
              const auto* ids = std::get<EmbeddingForward>(call).ids.data<std::int32_t>();
              for (int i = 0; i < 4; ++i) EXPECT_EQ(ids[i], 0);
            });
}

TEST(SecondsOfCall, DivideRowsEvenlyAmongExperts) {
  const auto integers = [](const Shape& shape) { return host_tensor(DType::kI32, shape); };
  const auto numbers = [](std::int64_t rows, std::int64_t columns) {
    return host_tensor(DType::kF32, {rows, columns});
  };
  time_call(LinearForward{.y = numbers(6, 4),
                          .x = numbers(6, 8),
                          .weight = {.tensor = numbers(12, 8),
                                     .out = 4,
                                     .in = 8,
                                     .dtype = DType::kF32,
                                     .matrices = 3},
                          .first_rows = integers({4})},
            [](const KernelCall& call) {
              const auto* first = std::get<LinearForward>(call).first_rows.data<std::int32_t>();
              for (int i = 0; i < 4; ++i) EXPECT_EQ(first[i], 2 * i);
            });
  // The room is for experts that a token chooses once.
  time_call(SortByExpert{.rows = {integers({5}), integers({5, 3}), integers({2})},
                         .choices = integers({5, 3}),
                         .first = 1},
            [](const KernelCall& call) {
              const auto* choices = std::get<SortByExpert>(call).choices.data<std::int32_t>();
              for (int i = 0; i < 15; ++i) EXPECT_EQ(choices[i], i % 3);
            });
  // Here for 6 of 10 choices, because the experts have a capacity.
  time_call(SortByExpert{.rows = {integers({6}), integers({5, 2}), integers({5})},
                         .choices = integers({5, 2})},
            [](const KernelCall& call) {
              const auto* choices = std::get<SortByExpert>(call).choices.data<std::int32_t>();
              for (int i = 0; i < 10; ++i) EXPECT_EQ(choices[i], i < 6 ? i % 2 : -1);
            });
  // Room for 3 of 4 tokens of two ranks.
  time_call(SortByRank{.sources = integers({4}),
                       .places = integers({2, 2}),
                       .received = integers({3, 2}),
                       .counts = integers({3, 2}),
                       .sent = integers({1}),
                       .choices = integers({4, 2}),
                       .experts = 2},
            [](const KernelCall& call) {
              const auto* choices = std::get<SortByRank>(call).choices.data<std::int32_t>();
              for (int i = 0; i < 8; ++i) EXPECT_EQ(choices[i], i < 4 ? i % 2 : -1);
            });
}

TEST(SecondsOfCall, UseAllRows) {
  const auto numbers = [] { return host_tensor(DType::kF32, {6, 4}); };
  time_call(
      ActivationForward{.y = numbers(), .x = numbers(), .used = host_tensor(DType::kI32, {1})},
      [](const KernelCall& call) {
        EXPECT_EQ(*std::get<ActivationForward>(call).used.data<std::int32_t>(), 6);
      });
}

TEST(SecondsOfCall, FillStridedOperandsToo) {
  const Tensor wide = host_tensor(DType::kF16, {4, 16});
  time_call(Copy{.dst = host_tensor(DType::kF16, {4, 8}), .src = wide.slice(1, 8, 8)},
            [](const KernelCall& call) {
              const Tensor& src = std::get<Copy>(call).src;
              const auto* values = src.data<Float16>();
              for (int row = 0; row < 4; ++row) {
                for (int i = 0; i < 8; ++i) {
                  const float value = std::abs(to_float(values[16 * row + i]));
                  EXPECT_TRUE(value >= 0.5F && value < 1) << value;
                }
              }
            });
}

}  // namespace
}  // namespace piton
