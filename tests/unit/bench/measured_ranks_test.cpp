// Idle time of a pipeline from times of its passes, and how these are taken.
#include "bench/measured_ranks.h"

#include <gtest/gtest.h>

#include <thread>

#include "device/host_device.h"
#include "kernels/measured/forwarding_kernels.h"
#include "kernels/reference/kernels.h"
#include "session/run_sections.h"

namespace piton {
namespace {

MeasuredRank rank_with(std::vector<PassSeconds> passes) {
  MeasuredRank rank;
  rank.passes = std::move(passes);
  return rank;
}

TEST(MeasuredBubble, IsIdleTimeOverTheWorkOfTheBusiestStage) {
  // Two stages, four micro-batches of 1 s forward and 2 s backward: (4 + 1) x 3 s, 12 of them busy.
  const std::vector<MeasuredRank> equal = {rank_with({{15, 12}}), rank_with({{14, 12}})};
  EXPECT_DOUBLE_EQ(measured_bubble(equal, 0), 0.25);
  const std::vector<MeasuredRank> unequal = {rank_with({{9, 1}, {20, 8}}),
                                             rank_with({{9, 1}, {19, 16}})};
  EXPECT_DOUBLE_EQ(measured_bubble(unequal, 1), 0.25);
}

TEST(GatheredRanks, AreThoseOfAllRanks) {
  HostDevice device;
  const auto world = make_single_world(device);
  MeasuredRank mine{.planned_bytes = 1,
                    .peak_bytes = 2,
                    .planned_reserved_bytes = 3,
                    .resident_bytes = 4,
                    .planned_sent_bytes = 5,
                    .sent_bytes = 6,
                    .passes = {{0.5, 0.25}, {7, 8}}};
  const auto all = gather_ranks(mine, *make_group_of_all(*world, "all"));
  ASSERT_EQ(all.size(), 1U);
  const MeasuredRank& one = all[0];
  EXPECT_EQ(one.planned_bytes, 1);
  EXPECT_EQ(one.peak_bytes, 2);
  EXPECT_EQ(one.planned_reserved_bytes, 3);
  EXPECT_EQ(one.resident_bytes, 4);
  EXPECT_EQ(one.planned_sent_bytes, 5);
  EXPECT_EQ(one.sent_bytes, 6);
  ASSERT_EQ(one.passes.size(), 2U);
  EXPECT_EQ(one.passes[0].whole, 0.5);
  EXPECT_EQ(one.passes[0].busy, 0.25);
  EXPECT_EQ(one.passes[1].busy, 8);
}

// Calls that take their time.
class SlowKernels final : public ForwardingKernels {
 public:
  using ForwardingKernels::ForwardingKernels;
  static constexpr std::chrono::milliseconds kTime{20};

 private:
  void submit(const KernelCall& call, Stream& stream) override {
    std::this_thread::sleep_for(kTime);
    inner_.run(call, stream);
  }
};

TEST(PassTimes, CountCallsFromTheFirstPassToTheSumsOfGradients) {
  const auto reference = make_reference_kernels();
  SlowKernels slow(*reference);
  PassTimes times(slow);
  HostDevice device;
  const auto stream = device.make_stream();
  const Tensor x = host_tensor(DType::kF32, {4});
  const auto call = [&] { times.kernels().run(Add{.y = x, .a = x, .b = x}, *stream); };
  call();  // before the step: no part of it
  {
    const Section whole(&times, kForwardBackwardSection);
    call();
    std::this_thread::sleep_for(SlowKernels::kTime);  // waits for the other stage
    call();
    const Section sums(&times, kGradientSumsSection);
    call();
  }
  ASSERT_EQ(times.steps().size(), 1U);
  const PassSeconds step = times.steps()[0];
  EXPECT_GE(step.busy, 0.04);
  EXPECT_GE(step.whole - step.busy, 0.02);
}

}  // namespace
}  // namespace piton
