// ranks: 2 4
// Collectives and messages through shared windows, and symmetric memory.
#include "comm_cases.h"

namespace piton::ranks {

MpiOptions options() { return {.timeout_seconds = 60}; }

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

}  // namespace piton::ranks
