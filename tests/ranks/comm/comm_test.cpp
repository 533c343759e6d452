// ranks: 2 4
// Collectives and messages through shared windows, and symmetric memory.
#include <sys/mman.h>

#include "comm_cases.h"

namespace piton::ranks {

RankOptions options() { return {.timeout_seconds = 60}; }

TEST(Symmetric, EveryMemberSeesTheOthersMemory) {
  Stage s;
  auto memory = s.group.allocate_symmetric(1000);
  ASSERT_EQ(memory->mine().bytes(), 1000);
  for (int m = 0; m < s.n; ++m) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory->peer(m).raw()) % 4096, 0U);
  }
  std::memset(memory->mine().raw(), s.me + 1, 1000);
  s.group.barrier();
  for (int m = 0; m < s.n; ++m) {
    EXPECT_EQ(memory->peer(m).data<std::uint8_t>()[999], m + 1);
  }
  s.group.barrier();
}

TEST(Symmetric, SignalsCountAndWake) {
  Stage s;
  auto memory = s.group.allocate_symmetric(64);
  const int next = (s.me + 1) % s.n;
  auto* theirs = reinterpret_cast<std::int64_t*>(memory->peer(next).raw());
  const auto* mine = reinterpret_cast<const std::int64_t*>(memory->mine().raw());
  for (std::uint64_t k = 1; k <= 50; ++k) {
    *theirs = static_cast<std::int64_t>(k) * 10 + s.me;
    memory->signal(next, 5);
    memory->wait(5, k);
    EXPECT_EQ(*mine, static_cast<std::int64_t>(k) * 10 + (s.me + s.n - 1) % s.n);
    memory->signal((s.me + s.n - 1) % s.n, 6);  // read
    memory->wait(6, k);
  }
}

TEST(Symmetric, CollectivesInPlaceGiveTheBitsOfTheSlots) {
  Stage s;
  const std::int64_t count = 700'000;
  auto memory = s.group.allocate_symmetric(count * 4);
  const Tensor inside(memory->mine().storage(), 0, DType::kF32, {count});
  const Tensor outside = host_tensor(DType::kF32, {count});
  const std::int64_t part = count / s.n;
  const auto own = [&](const Tensor& whole) { return whole.slice(0, part * s.me, part); };
  const auto fill = [&](const Tensor& t) {
    for (std::int64_t i = 0; i < count; ++i) put(t, i, rough_input(s.me, i));
  };
  fill(inside);
  fill(outside);
  s.group.all_reduce(inside, Reduction::kSum, *s.stream).wait();
  s.group.all_reduce(outside, Reduction::kSum, *s.stream).wait();
  EXPECT_TRUE(bytes_of(inside) == bytes_of(outside)) << "all-reduce";
  fill(inside);
  fill(outside);
  s.group.reduce_scatter(own(inside), inside, *s.stream).wait();
  s.group.reduce_scatter(own(outside), outside, *s.stream).wait();
  EXPECT_TRUE(bytes_of(own(inside)) == bytes_of(own(outside))) << "reduce-scatter";
  s.group.all_gather(inside, own(inside), *s.stream).wait();
  s.group.all_gather(outside, own(outside), *s.stream).wait();
  EXPECT_TRUE(bytes_of(inside) == bytes_of(outside)) << "all-gather";
}

TEST(Symmetric, AMemberWithOrdinaryMemoryMakesAllUseTheSlots) {
  Stage s;
  const std::int64_t count = 300'000;
  auto memory = s.group.allocate_symmetric(count * 8);
  // Another place in it on each rank, and none on the last.
  const Tensor inside(memory->mine().storage(), 64 * s.me, DType::kF32, {count});
  const Tensor data = s.me == s.n - 1 ? host_tensor(DType::kF32, {count}) : inside;
  for (int run = 0; run < 3; ++run) {
    for (std::int64_t i = 0; i < count; ++i) put(data, i, input(s.me, i));
    for (std::int64_t i = 0; i < count; ++i) put(inside, i, s.me == s.n - 1 ? 1 : get(inside, i));
    s.group.all_reduce(data, Reduction::kSum, *s.stream).wait();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int m = 0; m < s.n; ++m) sum += input(m, i);
      wrong += get(data, i) != sum;
    }
    EXPECT_EQ(wrong, 0);
    for (std::int64_t i = 0; i < count; ++i) put(inside, i, s.me);
    s.group.all_reduce(inside, Reduction::kSum, *s.stream).wait();
    EXPECT_EQ(get(inside, count - 1), s.n * (s.n - 1) / 2);
  }
}

// The communication thread is then the last owner of the memory, and returns it.
TEST(Symmetric, MemoryOfAnOpenCollectiveIsReturnedAfterIt) {
  Stage s;
  for (int run = 0; run < 3; ++run) {
    auto memory = s.group.allocate_symmetric(4000);
    Tensor inside(memory->mine().storage(), 0, DType::kF32, {1000});
    const std::weak_ptr<Storage> storage = inside.storage();
    if (s.me == 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Event open = s.group.all_reduce(inside, Reduction::kSum, *s.stream);
    inside = {};
    memory.reset();
    open.wait();
    EXPECT_TRUE(storage.expired());
  }
}

// Which has no separate form in place.
TEST(Symmetric, MemoryIsBroadcastToo) {
  Stage s;
  auto memory = s.group.allocate_symmetric(4000);
  const Tensor mine = memory->mine();
  for (int root = 0; root < s.n; ++root) {
    std::memset(mine.raw(), s.me + 1, 4000);
    s.group.broadcast(mine, root, *s.stream).wait();
    EXPECT_EQ(mine.data<std::uint8_t>()[0], root + 1);
    EXPECT_EQ(mine.data<std::uint8_t>()[3999], root + 1);
    s.group.barrier();
  }
}

// Memory that ends where nothing may be read.
class GuardedStorage final : public Storage {
 public:
  explicit GuardedStorage(std::int64_t bytes) : GuardedStorage(bytes, mapped(bytes)) {}
  ~GuardedStorage() override { ::munmap(start_, whole(data_bytes_) + kGuard); }

 private:
  static constexpr std::size_t kGuard = 4096;
  GuardedStorage(std::int64_t bytes, std::byte* start)
      : Storage(start + whole(bytes) - bytes, bytes, {}), start_(start), data_bytes_(bytes) {}
  static std::size_t whole(std::int64_t bytes) {
    return (static_cast<std::size_t>(bytes) + kGuard - 1) / kGuard * kGuard;
  }
  static std::byte* mapped(std::int64_t bytes) {
    void* start = ::mmap(nullptr, whole(bytes) + kGuard, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(start, MAP_FAILED);
    auto* bytes_of = static_cast<std::byte*>(start);
    EXPECT_EQ(::mprotect(bytes_of + whole(bytes), kGuard, PROT_NONE), 0);
    return bytes_of;
  }
  std::byte* start_;
  std::int64_t data_bytes_;
};

// Of several rounds, the last of which is short.
TEST(Collectives, ReadAndWriteNothingBehindTheirTensors) {
  Stage s;
  const std::int64_t size = (std::int64_t{5} << 20) + 3;
  const auto guarded = [&](std::int64_t elements) {
    return Tensor(std::make_shared<GuardedStorage>(4 * elements), 0, DType::kF32, {elements});
  };
  const Tensor data = guarded(size);
  data.data<float>()[size - 1] = static_cast<float>(s.me + 1);
  s.group.broadcast(data, s.n - 1, *s.stream).wait();
  EXPECT_EQ(data.data<float>()[size - 1], s.n);
  s.group.all_reduce(data, Reduction::kSum, *s.stream).wait();
  EXPECT_EQ(data.data<float>()[size - 1], s.n * s.n);
  const Tensor all = guarded(size * s.n);
  s.group.all_gather(all, data, *s.stream).wait();
  EXPECT_EQ(all.data<float>()[size - 1], s.n * s.n);
  s.group.reduce_scatter(data, all, *s.stream).wait();
  EXPECT_EQ(data.data<float>()[size - 1], s.n * s.n * s.n);
}

}  // namespace piton::ranks
