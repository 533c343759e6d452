// Transfers take latency + bytes / bandwidth, follow one another on their class of links, and use
// no processor time.
#include "comm/virtual/link_clock.h"

#include <gtest/gtest.h>

#include <ctime>
#include <numeric>
#include <vector>

#include "comm/virtual/world.h"
#include "device/host_device.h"

namespace piton {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr VirtualLinks kLinks{.within_hosts = {.latency_seconds = 0.001, .bytes_per_second = 1e6},
                              .between_hosts = {.latency_seconds = 0.01, .bytes_per_second = 1e5},
                              .ranks_of_host = 2};

double seconds(LinkClock::Time begin, LinkClock::Time end) { return Seconds(end - begin).count(); }

TEST(LinkClock, FollowsTheFormulaOnEachClassOfLinks) {
  LinkClock clock(kLinks);
  const LinkClock::Time start = clock.now();
  EXPECT_NEAR(seconds(start, clock.transfer(LinkClass::kWithinHosts, 1000, 3, start)), 0.004, 1e-6);
  EXPECT_NEAR(seconds(start, clock.transfer(LinkClass::kWithinHosts, 2000, 1, start)), 0.007, 1e-6);
  EXPECT_NEAR(seconds(start, clock.transfer(LinkClass::kBetweenHosts, 1000, 1, start)), 0.02, 1e-6);
  const LinkClock::Time later = start + std::chrono::seconds(1);
  EXPECT_NEAR(seconds(start, clock.transfer(LinkClass::kWithinHosts, 1000, 0, later)), 1.001, 1e-6);
  EXPECT_NEAR(clock.times().transfers_seconds, 0.004 + 0.003 + 0.02 + 0.001, 1e-9);
  EXPECT_EQ(clock.times().waited_seconds, 0);
}

TEST(LinkClock, WaitsWithoutUsingACore) {
  LinkClock clock(kLinks);
  const LinkClock::Time start = clock.now();
  const std::clock_t used = std::clock();
  TimedFence fence(clock, start + std::chrono::milliseconds(200));
  EXPECT_FALSE(fence.complete());
  fence.wait();
  EXPECT_TRUE(fence.complete());
  EXPECT_GE(seconds(start, clock.now()), 0.2);
  EXPECT_LT(static_cast<double>(std::clock() - used) / CLOCKS_PER_SEC, 0.05);
  EXPECT_NEAR(clock.times().waited_seconds, 0.2, 0.05);
  fence.wait();  // again: it is over
  EXPECT_NEAR(clock.times().waited_seconds, 0.2, 0.05);
}

TEST(VirtualWorld, TimesTheRowsThatThisRankSends) {
  HostDevice device;
  const auto stream = device.make_stream();
  LinkClock clock(kLinks);
  const auto world = make_virtual_world(1, 2, &clock);
  const std::vector<int> ranks{0, 1};
  const auto group = world->make_group(ranks, "near");
  RowCounts counts(2);
  counts.at(1, 0) = 250;
  counts.at(1, 1) = 500;
  counts.at(0, 1) = 7;
  const Tensor mine = host_tensor(DType::kF32, {800, 2}), out = host_tensor(DType::kF32, {800, 2});
  group->all_to_all_rows(out, mine, counts, *stream);  // 250 rows of 8 bytes in one message
  EXPECT_NEAR(clock.times().transfers_seconds, 0.001 + 0.002, 1e-9);
  EXPECT_EQ(group->traffic().all_to_all_bytes, 2000);
}

TEST(VirtualWorld, TimesCollectivesByTheLinksOfTheirGroup) {
  HostDevice device;
  const auto stream = device.make_stream();
  LinkClock clock(kLinks);
  const auto world = make_virtual_world(0, 4, &clock);
  const std::vector<int> near_ranks{0, 1};
  const std::vector<int> all_ranks{0, 1, 2, 3};
  const auto near = world->make_group(near_ranks, "near");
  const auto all = world->make_group(all_ranks, "all");
  const Tensor data = host_tensor(DType::kF32, {1000});
  near->all_reduce(data, Reduction::kSum, *stream);  // 2 x 1/2 of 4000 bytes in 2 messages
  EXPECT_NEAR(clock.times().transfers_seconds, 0.002 + 0.004, 1e-9);
  EXPECT_EQ(near->traffic().all_reduce_bytes, 4000);
  const Event event = all->all_gather(data, data.slice(0, 0, 250), *stream);
  EXPECT_NEAR(clock.times().transfers_seconds, 0.006 + 0.03 + 0.03, 1e-9);
  EXPECT_FALSE(event.complete());
  stream->wait(event);
  EXPECT_TRUE(event.complete());
  EXPECT_GT(clock.times().waited_seconds, 0.01);
  // One that waits for another begins after it.
  const Event first = near->broadcast(data, 0, *stream);
  const Event second = all->broadcast(data, 0, {*stream, {first}});
  second.wait();
  EXPECT_TRUE(first.complete());
}

}  // namespace
}  // namespace piton
