// The three devices that need no GPU: placement of bytes and order of work.
#include "device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <thread>

#include "device/host_device.h"
#include "device/meta_device.h"
#include "support/delayed_device.h"
#include "support/tensors.h"

namespace piton {
namespace {

using test::values;

// What goes up comes down again; zero() zeroes.
void expect_round_trip(Device& device) {
  Arena arena(device, 1 << 16);
  const auto stream = device.make_stream();
  const Tensor tensor = arena.allocate(DType::kF32, {3}, MemoryKind::kWorkspace);
  float up[3] = {1, 2, 3};
  device.upload(up, tensor, *stream);
  up[0] = 9;  // the buffer may be reused at once
  float down[3] = {};
  device.download(tensor, down, *stream);
  EXPECT_EQ(down[0], 1);
  EXPECT_EQ(down[2], 3);
  device.zero(tensor.slice(0, 0, 2), *stream);
  device.download(tensor, down, *stream);
  EXPECT_EQ(down[0], 0);
  EXPECT_EQ(down[2], 3);
  const auto* seen = reinterpret_cast<const float*>(device.host_address(tensor.slice(0, 2, 1)));
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(*seen, 3);
  EXPECT_EQ(tensor.place(), device.place());
}

TEST(HostDevice, HoldsWhatIsUploaded) {
  HostDevice device("host: test");
  expect_round_trip(device);
  EXPECT_EQ(device.name(), "host: test");
}

// 5 MiB less a little, from the middle of a page on: two edges, whole pages between them, and
// several parts for two threads.
TEST(HostDevice, ZeroesExactlyWhatItIsGiven) {
  constexpr std::int64_t kBytes = (std::int64_t{5} << 20) - 12;
  constexpr std::int64_t kBefore = 1000;
  ThreadPool threads(2);
  for (const bool shared : {false, true}) {
    for (const bool fresh : {false, true}) {
      HostDevice device;
      if (shared) device.share_work(threads);
      Arena arena(device);
      const auto stream = device.make_stream();
      const Tensor all = arena.allocate(DType::kU8, {kBefore + kBytes + 1}, MemoryKind::kWorkspace);
      std::memset(all.raw(), 7, static_cast<std::size_t>(all.bytes()));
      const Tensor part = all.slice(0, kBefore, kBytes);
      fresh ? device.zero_new(part, *stream) : device.zero(part, *stream);
      const std::byte* begin = part.raw();
      EXPECT_EQ(std::count(begin, begin + kBytes, std::byte{0}), kBytes);
      EXPECT_EQ(std::count(all.raw(), all.raw() + kBefore, std::byte{7}), kBefore);
      EXPECT_EQ(begin[kBytes], std::byte{7});
      device.zero_new(all.slice(0, 0, 10), *stream);  // less than a page
      EXPECT_EQ(std::count(all.raw(), all.raw() + kBefore, std::byte{7}), kBefore - 10);
    }
  }
}

TEST(HostDevice, RunsWorkInline) {
  HostDevice device;
  const auto stream = device.make_stream();
  bool done = false;
  stream->enqueue([&] { done = true; });
  EXPECT_TRUE(done);
  EXPECT_TRUE(stream->record().complete());
}

TEST(HostDevice, AlignsLargeBlocksToHugePages) {
  HostDevice device;
  const std::int64_t bytes = std::int64_t{5} << 20;
  std::byte* data = device.allocate(bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % (2 << 20), 0);
  device.release(data, bytes);
}

TEST(HostDevice, RefusesMoreThanItsLimit) {
  HostDevice device("host", 1000);
  std::byte* data = device.allocate(600);
  try {
    device.allocate(500);
    FAIL() << "1100 bytes of 1000";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kMemory);
    EXPECT_STREQ(error.what(),
                 "host: out of memory: 500 bytes asked, 600 of 1000 in use; use smaller "
                 "micro-batches, recomputation, or more ranks");
  }
  device.release(data, 600);
  device.release(device.allocate(1000), 1000);
}

TEST(HostDevice, RefusesMoreThanTheMachineHas) {
  HostDevice device;
  EXPECT_THROW(device.allocate(std::int64_t{1} << 50), Error);
}

TEST(MetaDevice, GivesAddressesWithoutMemory) {
  MetaDevice device;
  Arena arena(device);
  const auto stream = device.make_stream();
  const Tensor huge = arena.allocate(DType::kF32, {1 << 20, 1 << 20}, MemoryKind::kParameters);
  const Tensor small = arena.allocate(DType::kF32, {2}, MemoryKind::kActivations);
  EXPECT_NE(huge.raw(), small.raw());
  EXPECT_EQ(arena.counts().peak_total_bytes, (std::int64_t{4} << 40) + 64);
  EXPECT_EQ(device.host_address(huge), nullptr);
  float down[2] = {5, 5};
  device.zero(huge, *stream);
  device.upload(down, small, *stream);
  device.download(small, down, *stream);
  EXPECT_EQ(down[1], 0);
  EXPECT_TRUE(stream->record().complete());
}

TEST(DelayedDevice, HoldsWhatIsUploaded) {
  DelayedDevice device(1);
  expect_round_trip(device);
}

TEST(DelayedDevice, StartsWithNan) {
  DelayedDevice device(1);
  Arena arena(device, 4096);
  const auto stream = device.make_stream();
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
    const Tensor tensor = arena.allocate(dtype, {5}, MemoryKind::kWorkspace);
    const Tensor host = host_tensor(dtype, {5});
    device.download(tensor, host.raw(), *stream);
    for (const double value : values(host)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST(DelayedDevice, RunsWorkInOrderButNotAtOnce) {
  DelayedDevice device(5, /*max_delay_us=*/3000);
  const auto stream = device.make_stream();
  std::vector<int> order;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) stream->enqueue([&order, i] { order.push_back(i); });
  const Event event = stream->record();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(1000));
  event.wait();
  EXPECT_TRUE(event.complete());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(DelayedDevice, MakesAStreamWaitForAnother) {
  DelayedDevice device(9, /*max_delay_us=*/500);
  const auto first = device.make_stream();
  const auto second = device.make_stream();
  std::atomic<bool> written = false;
  std::atomic<int> missing = 0;
  for (int round = 0; round < 20; ++round) {
    first->enqueue([&] { written = true; });
    second->wait(first->record());
    second->enqueue([&] {
      if (!written) ++missing;
      written = false;
    });
    first->wait(second->record());
  }
  first->synchronize();
  EXPECT_EQ(missing, 0);
}

TEST(DelayedDevice, FinishesItsWorkBeforeAStreamGoes) {
  DelayedDevice device(2, /*max_delay_us=*/1000);
  std::atomic<int> done = 0;
  {
    const auto stream = device.make_stream();
    for (int i = 0; i < 5; ++i) stream->enqueue([&] { ++done; });
  }
  EXPECT_EQ(done, 5);
}

TEST(DelayedDevice, RefusesMoreThanItsAddresses) {
  DelayedDevice device(1, 0, 1 << 16);
  std::byte* data = device.allocate(60'000);
  EXPECT_THROW(device.allocate(10'000), Error);
  device.release(data, 60'000);
  device.release(device.allocate(1 << 16), 1 << 16);
}

TEST(DelayedDeviceDeathTest, KnowsForeignTensors) {
  DelayedDevice device(1);
  EXPECT_DEATH(device.host_address(host_tensor(DType::kF32, {1})), "is not in its memory");
  EXPECT_DEATH(device.release(nullptr, 4), "was not allocated");
}

// To the host and back, on each device.
void expect_copies(Device& device) {
  Arena arena(device, 1 << 16);
  Arena host(device.host_memory(), 1 << 16);
  const auto stream = device.make_stream();
  const Tensor there = arena.allocate(DType::kI32, {1000}, MemoryKind::kWorkspace, *stream);
  const Tensor also = arena.allocate(DType::kI32, {1000}, MemoryKind::kWorkspace, *stream);
  const Tensor from = host.allocate(DType::kI32, {1000}, MemoryKind::kWorkspace);
  const Tensor to = host.allocate(DType::kI32, {1000}, MemoryKind::kWorkspace);
  for (int i = 0; i < 1000; ++i) from.data<std::int32_t>()[i] = i * i;
  device.copy(there, from, *stream);
  device.copy(also, there, *stream);
  device.copy(to, also, *stream);
  stream->synchronize();
  EXPECT_EQ(std::memcmp(to.raw(), from.raw(), 4000), 0);
}

TEST(HostDevice, CopiesBetweenPlaces) {
  HostDevice device;
  expect_copies(device);
}

TEST(DelayedDevice, CopiesBetweenPlaces) {
  DelayedDevice device(3);
  expect_copies(device);
}

TEST(DelayedDevice, CallsBackWhenAnEventIsComplete) {
  DelayedDevice device(4, /*max_delay_us=*/2000);
  const auto stream = device.make_stream();
  std::atomic<int> step = 0;
  stream->enqueue([&] { step = 1; });
  const Event event = stream->record();
  std::atomic<int> seen = -1;
  event.fence()->then([&] { seen = step.load(); });
  event.wait();
  stream->synchronize();
  EXPECT_EQ(seen, 1);
  event.fence()->then([&] { seen = 7; });  // complete: at once
  EXPECT_EQ(seen, 7);
}

}  // namespace
}  // namespace piton
