// Slots are reused, wait for their fences, get the same addresses in every step, and are counted.
#include "tensor/arena.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <thread>
#include <vector>

namespace piton {
namespace {

class CountedMemory final : public Memory {
 public:
  explicit CountedMemory(std::int64_t limit_bytes = std::int64_t{1} << 30) : limit_(limit_bytes) {}
  ~CountedMemory() override { EXPECT_EQ(used_, 0) << "not all segments were given back"; }
  std::byte* allocate(std::int64_t bytes) override {
    if (used_ + bytes > limit_) throw Error(Fault::kMemory, "test memory: {} bytes", bytes);
    used_ += bytes;
    return static_cast<std::byte*>(std::aligned_alloc(64, static_cast<std::size_t>(bytes)));
  }
  void release(std::byte* data, std::int64_t bytes) override {
    used_ -= bytes;
    std::free(data);
  }
  Place place() const override { return {DeviceKind::kHost, 3}; }

 private:
  std::int64_t limit_;
  std::int64_t used_ = 0;
};

class ManualFence final : public Fence {
 public:
  bool complete() const override { return complete_; }
  void wait() override {
    ++waits;
    complete_ = true;
  }
  void finish() { complete_ = true; }
  int waits = 0;

 private:
  std::atomic<bool> complete_ = false;
};

Tensor bytes(Arena& arena, std::int64_t count, MemoryKind kind = MemoryKind::kActivations) {
  return arena.allocate(DType::kU8, {count}, kind);
}

TEST(Arena, GivesAlignedTensorsOfItsPlace) {
  CountedMemory memory;
  Arena arena(memory, 4096);
  for (const std::int64_t count : {0, 1, 63, 65, 100, 5000}) {
    const Tensor tensor = bytes(arena, count);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64, 0);
    EXPECT_EQ(tensor.elements(), count);
    EXPECT_EQ(tensor.place().index, 3);
  }
  EXPECT_EQ(&arena.memory(), &memory);
}

TEST(Arena, ReusesWhatCameBackAndJoinsNeighbors) {
  CountedMemory memory;
  Arena arena(memory, 4096);
  Tensor a = bytes(arena, 1024), b = bytes(arena, 1024), c = bytes(arena, 2048);
  const std::byte* first = a.raw();
  a = Tensor();
  b = Tensor();
  const Tensor joined = bytes(arena, 2048);  // only fits where both were
  EXPECT_EQ(joined.raw(), first);
  EXPECT_EQ(arena.counts().system_allocations, 1);
  const Tensor more = bytes(arena, 64);
  EXPECT_EQ(arena.counts().system_allocations, 2);
}

TEST(Arena, TakesTheBlockThatFitsBest) {
  CountedMemory memory;
  Arena arena(memory, 4096);
  Tensor wide = bytes(arena, 1024);
  const Tensor wall = bytes(arena, 64);
  Tensor tight = bytes(arena, 512);
  const Tensor end = bytes(arena, 64);
  const std::byte* place = tight.raw();
  wide = Tensor();
  tight = Tensor();
  EXPECT_EQ(bytes(arena, 500).raw(), place);
}

TEST(Arena, RepeatsTheAddressesOfAStepInTheNext) {
  CountedMemory memory;
  Arena arena(memory, 1 << 16);
  std::vector<std::vector<const std::byte*>> addresses(3);
  std::vector<std::int64_t> segments;
  for (auto& step : addresses) {
    std::vector<Tensor> live;
    for (int i = 0; i < 200; ++i) {
      live.push_back(bytes(arena, 100 + (i * 7919) % 3000));
      step.push_back(live.back().raw());
      if (i % 3 == 2) live.erase(live.begin() + (i * 31) % static_cast<int>(live.size()));
    }
    segments.push_back(arena.counts().system_allocations);
  }
  EXPECT_EQ(addresses[1], addresses[2]);
  EXPECT_EQ(segments[0], segments[2]) << "no request reaches the system after the first step";
}

class User final : public MemoryUser {
 public:
  const StreamIdentity& identity() const override { return identity_; }
  void wait_for(const std::shared_ptr<Fence>& fence) override {
    waits.push_back(fence.get());
    fence->set_waited_by(identity_);
  }
  std::vector<const Fence*> waits;

 private:
  StreamIdentity identity_ = std::make_shared<char>();
};

Tensor bytes(Arena& arena, std::int64_t count, MemoryUser& user) {
  return arena.allocate(DType::kU8, {count}, MemoryKind::kActivations, user);
}

TEST(Arena, PrefersSlotsThatNobodyHasToBeWaitedFor) {
  for (const bool complete : {false, true}) {  // which makes no difference
    CountedMemory memory;
    Arena arena(memory, 2048);
    User user;
    Tensor tensor = bytes(arena, 1024, user);
    const std::byte* place = tensor.raw();
    const auto fence = std::make_shared<ManualFence>();
    if (complete) fence->finish();
    arena.hold(tensor.slice(0, 10, 5), fence);  // through a view
    tensor = Tensor();
    EXPECT_EQ(arena.counts().in_use_bytes[static_cast<int>(MemoryKind::kActivations)], 0);
    const Tensor free = bytes(arena, 1024, user);
    EXPECT_NE(free.raw(), place);
    EXPECT_TRUE(user.waits.empty());
    const Tensor held = bytes(arena, 1024, user);  // before the arena grows
    EXPECT_EQ(held.raw(), place);
    EXPECT_EQ(user.waits, (std::vector<const Fence*>{fence.get()}));
    EXPECT_EQ(fence->waits, 0) << "the stream waits, not the host";
    EXPECT_EQ(arena.counts().system_allocations, 1);
    arena.hold(host_tensor(DType::kF32, {1}), fence);  // of other origin: left alone
  }
}

TEST(Arena, ForgetsFencesThatTheUserHasWaitedFor) {
  CountedMemory memory;
  Arena arena(memory, 2048);
  User user;
  User other;
  const auto fence = std::make_shared<ManualFence>();
  Tensor tensor = bytes(arena, 1024, user);
  const std::byte* place = tensor.raw();
  arena.hold(tensor, fence);
  user.wait_for(fence);
  tensor = Tensor();
  EXPECT_EQ(bytes(arena, 1024, user).raw(), place);
  EXPECT_EQ(user.waits.size(), 1);
  tensor = bytes(arena, 1024, user);
  const auto next = std::make_shared<ManualFence>();
  arena.hold(tensor, next);
  tensor = Tensor();
  user.wait_for(next);  // after the slot came back
  EXPECT_EQ(bytes(arena, 1024, user).raw(), place);
  tensor = bytes(arena, 2048, user);
  arena.hold(tensor, fence);
  arena.hold(tensor, next);
  other.wait_for(next);
  tensor = Tensor();
  EXPECT_EQ(bytes(arena, 2048, user).raw(), place);
  EXPECT_EQ(user.waits.back(), next.get()) << "another stream's wait is not this one's";
}

TEST(Arena, JoinsHeldNeighborsWhereARequestNeedsBoth) {
  CountedMemory memory;
  Arena arena(memory, 2048);
  User user;
  Tensor left = bytes(arena, 1024, user), right = bytes(arena, 1024, user);
  const std::byte* place = left.raw();
  const auto first = std::make_shared<ManualFence>();
  const auto second = std::make_shared<ManualFence>();
  arena.hold(left, first);
  arena.hold(right, second);
  left = right = Tensor();
  Tensor most = bytes(arena, 1100, user);
  EXPECT_EQ(most.raw(), place);
  EXPECT_EQ(user.waits.size(), 2);
  const Tensor rest = bytes(arena, 896, user);
  EXPECT_EQ(rest.raw(), place + 1152);
  EXPECT_EQ(arena.counts().system_allocations, 1);
}

TEST(Arena, WaitsOnTheHostWhereThereIsNoStream) {
  CountedMemory memory(4096);
  Arena arena(memory, 4096);
  Tensor tensor = bytes(arena, 4096);
  const auto fence = std::make_shared<ManualFence>();
  arena.hold(tensor, fence);
  tensor = Tensor();
  EXPECT_TRUE(bytes(arena, 4096).defined());
  EXPECT_EQ(fence->waits, 1);
}

// An operation whose rank is lost: complete, and to be reported.
class LostFence final : public Fence {
 public:
  bool complete() const override { return waited_; }
  void wait() override {
    waited_ = true;
    throw Error(Fault::kPeer, std::string("rank 3 is gone"));
  }

 private:
  bool waited_ = false;
};

TEST(Arena, GoesInPeaceWithAnOperationThatFailed) {
  CountedMemory memory;  // which looks whether all segments come back
  Arena arena(memory, 1 << 20);
  for (int i = 0; i < 3; ++i) arena.hold(bytes(arena, 400), std::make_shared<LostFence>());
}

TEST(Arena, ReportsAnOperationThatFailedWhereItWaitsForMemory) {
  CountedMemory memory(4096);
  Arena arena(memory, 4096);
  arena.hold(bytes(arena, 4096), std::make_shared<LostFence>());
  EXPECT_THROW(bytes(arena, 4096), Error);
  EXPECT_TRUE(bytes(arena, 4096).defined()) << "the slot is free all the same";
}

TEST(Arena, SaysWhatHoldsTheMostWhenMemoryIsFull) {
  CountedMemory memory(std::int64_t{3} << 20);
  Arena arena(memory, 1 << 20);
  const Tensor parameters = bytes(arena, 1 << 20, MemoryKind::kParameters);
  const Tensor activations = bytes(arena, 1000, MemoryKind::kActivations);
  try {
    arena.allocate(DType::kF32, {1024, 1024}, MemoryKind::kGradients);
    FAIL() << "4 MiB in 3";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kMemory);
    const std::string text = error.what();
    EXPECT_EQ(
        text,
        "memory: no room for 4.0 MiB of gradients (fp32 [1024, 1024]): 1.0 MiB in use, most of "
        "it parameters (1.0 MiB); test memory: 4194304 bytes");
  }
}

TEST(Arena, CountsByKindAndRemembersPeaks) {
  CountedMemory memory;
  Arena arena(memory, 1 << 16);
  const auto in_use = [&](MemoryKind kind) {
    return arena.counts().in_use_bytes[static_cast<std::size_t>(kind)];
  };
  const Tensor parameters = bytes(arena, 640, MemoryKind::kParameters);
  { const Tensor activations = bytes(arena, 6400); }
  const Tensor workspace = bytes(arena, 128, MemoryKind::kWorkspace);
  EXPECT_EQ(in_use(MemoryKind::kParameters), 640);
  EXPECT_EQ(in_use(MemoryKind::kActivations), 0);
  const MemoryCounts counts = arena.counts();
  EXPECT_EQ(counts.peak_bytes[static_cast<std::size_t>(MemoryKind::kActivations)], 6400);
  EXPECT_EQ(counts.peak_total_bytes, 7040);
  EXPECT_EQ(counts.reserved_bytes, 1 << 16);
  EXPECT_EQ(counts.slots, 3);
  EXPECT_EQ(name(MemoryKind::kOptimizer), "optimizer");
}

TEST(Arena, KnowsWhetherTheMemoryOfRecordedWorkIsFree) {
  CountedMemory memory;
  Arena arena(memory, 4096);
  const Tensor before = bytes(arena, 64);
  Tensor result;
  const auto work = [&] {
    const Tensor first = bytes(arena, 640);
    result = bytes(arena, 128);
    const Tensor second = bytes(arena, 320);
  };
  work();
  result = {};
  const std::vector<MemoryRange> used = arena.used_by(work);
  std::int64_t sum = 0;
  for (const MemoryRange& range : used) sum += range.bytes;
  EXPECT_EQ(sum, 640 + 320) << "what is kept is not free";
  EXPECT_TRUE(arena.is_free(used));

  Tensor other = bytes(arena, 64);  // takes a part of the first
  EXPECT_FALSE(arena.is_free(used));
  const auto fence = std::make_shared<ManualFence>();
  arena.hold(other, fence);
  other = {};
  EXPECT_FALSE(arena.is_free(used)) << "someone still works on it";
  User user;
  arena.settle(user);
  EXPECT_TRUE(arena.is_free(used));
}

TEST(Arena, TakesNoSegmentForRecordedWork) {
  CountedMemory memory;
  Arena arena(memory, 4096);
  bytes(arena, 64);
  EXPECT_THROW(arena.used_by([&] { bytes(arena, 5000); }), Error);
  EXPECT_EQ(arena.counts().system_allocations, 1);
  bytes(arena, 5000);  // as always afterwards
  EXPECT_EQ(arena.counts().system_allocations, 2);
}

TEST(Arena, ServesThreadsAtOnce) {
  CountedMemory memory;
  Arena arena(memory, 1 << 16);
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&arena, id] {
      for (int i = 0; i < 500; ++i) {
        const Tensor tensor = bytes(arena, 64 + (i * 37) % 900);
        std::fill(tensor.raw(), tensor.raw() + tensor.bytes(), static_cast<std::byte>(id));
        const auto fence = std::make_shared<ManualFence>();
        if (i % 5 == 0) arena.hold(tensor, fence);
        for (std::int64_t at = 0; at < tensor.bytes(); ++at) {
          ASSERT_EQ(tensor.raw()[at], static_cast<std::byte>(id)) << "two threads share a slot";
        }
        fence->finish();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  const MemoryCounts counts = arena.counts();
  for (const std::int64_t in_use : counts.in_use_bytes) EXPECT_EQ(in_use, 0);
}

TEST(ArenaDeathTest, DoesNotGoBeforeItsTensors) {
  EXPECT_DEATH(
      {
        CountedMemory memory;
        Tensor tensor;
        Arena arena(memory, 4096);
        tensor = bytes(arena, 10);
      },
      "1 slots still have tensors");
}

}  // namespace
}  // namespace piton
