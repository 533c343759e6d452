// Every step allocates the same addresses, independent of timing: they depend only on the program.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "comm/virtual/world.h"
#include "support/delayed_device.h"
#include "support/sampled.h"
#include "support/small_training.h"

namespace piton {
namespace {

using Requests = std::vector<std::pair<const std::byte*, std::int64_t>>;

// The requests of step 3 and of step 30, as rank `rank` of virtual ranks makes them. Every kernel,
// copy and collective runs late, by a time drawn from `seed`.
std::pair<Requests, Requests> requests(const test::SmallLayout& layout, int rank,
                                       std::uint64_t seed, std::int64_t* segments) {
  DelayedDevice device(seed, /*max_delay_us=*/20);
  const auto world = make_virtual_world(rank, layout.schedule.stages * layout.data);
  test::SmallTraining training(*world, device, layout);
  Requests third;
  Requests last;
  Requests* seen = nullptr;
  training.arena.observe([&](const std::byte* data, std::int64_t bytes) {
    if (seen != nullptr) seen->emplace_back(data, bytes);
  });
  const int steps = test::nightly() ? 30 : 8;
  for (int step = 1; step <= steps; ++step) {
    seen = step == 3 ? &third : step == steps ? &last : nullptr;
    if (step == 3) *segments = training.arena.counts().system_allocations;
    training.backward(0);
    training.weights->publish_values(*training.stream);
  }
  *segments -= training.arena.counts().system_allocations;
  training.arena.observe(nullptr);
  return {third, last};
}

TEST(Addresses, OfStep3AreThoseOfLaterStepsUnderDelays) {
  for (const int zero_stage : test::sampled(std::vector{0, 1, 2, 3}, 2, 1)) {
    for (const int stages : {1, 2}) {
      SCOPED_TRACE(testing::Message() << "ZeRO " << zero_stage << ", " << stages << " stages");
      const test::SmallLayout layout{
          .schedule = one_forward_one_backward(stages, 3), .data = 4, .zero_stage = zero_stage};
      for (const int rank : {0, 4 * stages - 1}) {
        std::int64_t segments = 0;
        const auto [third, last] = requests(layout, rank, 17, &segments);
        EXPECT_GT(third.size(), 10);
        EXPECT_TRUE(third == last);
        EXPECT_EQ(segments, 0) << "no request reached the device after step 3";
        if (rank != 0 && !test::nightly()) continue;
        // Other delays give the same places, counted from the first request.
        const auto [again, end] = requests(layout, rank, 99, &segments);
        ASSERT_EQ(again.size(), third.size());
        for (std::size_t i = 0; i < third.size(); ++i) {
          ASSERT_EQ(again[i].first - again[0].first, third[i].first - third[0].first);
        }
      }
    }
  }
}

}  // namespace
}  // namespace piton
