// Tests for every way of moving bytes in comm. Included by one test program for shared windows and
// by one for messages.
//
// The oracle is a float64 sum over all members' inputs, which every rank can recompute, since
// inputs are drawn from (rank, index). Sums are also compared bit for bit with the documented
// order: left to right over the members, in fp32 (fp64), rounded once. Both programs pass this, so
// messages and shared memory give the same bits.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "base/hash.h"
#include "support/ranks_main.h"

namespace piton::ranks {

constexpr DType kSummed[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kF16, DType::kI64};

// Uniform in [-1, 1), a multiple of 2^-7 so that every type holds it exactly; integers to +-1000.
inline double input(int rank, std::int64_t index, std::uint64_t salt = 0) {
  const std::uint64_t words[3] = {static_cast<std::uint64_t>(rank),
                                  static_cast<std::uint64_t>(index), salt};
  const std::uint64_t bits = hash64({reinterpret_cast<const char*>(words), sizeof words});
  return static_cast<double>(bits % 256) / 128 - 1;
}

// Not exact in fp32, so that the order of a sum shows in its last bits.
inline double rough_input(int rank, std::int64_t index) {
  return input(rank, index) / 3 * std::pow(10.0, static_cast<double>(index % 5) - 2);
}

inline void put(const Tensor& t, std::int64_t i, double x) {
  switch (t.dtype()) {
    case DType::kF64:
      t.data<double>()[i] = x;
      return;
    case DType::kF32:
      t.data<float>()[i] = static_cast<float>(x);
      return;
    case DType::kBF16:
      t.data<BFloat16>()[i] = to_bfloat16(static_cast<float>(x));
      return;
    case DType::kF16:
      t.data<Float16>()[i] = to_float16(static_cast<float>(x));
      return;
    case DType::kI64:
      t.data<std::int64_t>()[i] = std::llround(x * 1000);
      return;
    case DType::kI32:
      t.data<std::int32_t>()[i] = static_cast<std::int32_t>(std::lround(x * 1000));
      return;
    case DType::kU8:
      t.data<std::uint8_t>()[i] = static_cast<std::uint8_t>(std::lround(x * 100));
      return;
  }
}

inline double get(const Tensor& t, std::int64_t i) {
  switch (t.dtype()) {
    case DType::kF64:
      return t.data<double>()[i];
    case DType::kF32:
      return t.data<float>()[i];
    case DType::kBF16:
      return to_float(t.data<BFloat16>()[i]);
    case DType::kF16:
      return to_float(t.data<Float16>()[i]);
    case DType::kI64:
      return static_cast<double>(t.data<std::int64_t>()[i]);
    case DType::kI32:
      return t.data<std::int32_t>()[i];
    case DType::kU8:
      return t.data<std::uint8_t>()[i];
  }
  return 0;
}

// The input as the type holds it.
inline double held(DType dtype, double x) {
  const Tensor one = host_tensor(dtype, {1});
  put(one, 0, x);
  return get(one, 0);
}

// Relative error of n values rounded once: half a unit in the last place of the type, and the fp32
// running sum beneath it, n halves of its last place.
inline double tolerance(DType dtype, int n) {
  const double sum = n * std::ldexp(1.0, -24);
  switch (dtype) {
    case DType::kF64:
      return n * std::ldexp(1.0, -53);
    case DType::kF32:
      return sum;
    case DType::kBF16:
      return sum + std::ldexp(1.0, -8);
    case DType::kF16:
      return sum + std::ldexp(1.0, -11);
    default:
      return 0;
  }
}

inline std::string bytes_of(const Tensor& t) {
  return {reinterpret_cast<const char*>(t.raw()), static_cast<std::size_t>(t.bytes())};
}

// The same on every member, bit for bit?
inline void expect_equal_everywhere(Communicator& group, const Tensor& t) {
  std::string hash(8, '\0');
  const std::uint64_t value = hash64(bytes_of(t));
  std::memcpy(hash.data(), &value, 8);
  for (const std::string& its : group.gather_bytes(hash)) EXPECT_EQ(its, hash);
}

struct Stage {
  Device& device = ranks::device();
  std::unique_ptr<Stream> stream = device.make_stream();
  Communicator& group = everyone();
  int n = group.size();
  int me = group.rank();
};

// Slots of shared memory hold 512 KiB, chunks of messages 4 MiB: 1 300 001 fp32 pass both.
constexpr std::int64_t kSizes[] = {0, 1, 2, 3, 15, 17, 1000, 4096, 4097, 65'537, 1'300'001};

TEST(AllReduce, IsTheSumOverMembersForEveryTypeAndSize) {
  Stage s;
  for (DType dtype : kSummed) {
    for (std::int64_t size : kSizes) {
      const Tensor data = host_tensor(dtype, {size});
      for (std::int64_t i = 0; i < size; ++i) put(data, i, rough_input(s.me, i));
      s.group.all_reduce(data, Reduction::kSum, *s.stream).wait();
      int wrong = 0;
      for (std::int64_t i = 0; i < size; i += std::max<std::int64_t>(1, size / 5000)) {
        double sum = 0;
        double magnitude = 0;
        for (int m = 0; m < s.n; ++m) {
          const double x = held(dtype, rough_input(m, i));
          sum += x;
          magnitude += std::abs(x);
        }
        if (std::abs(get(data, i) - sum) >
            tolerance(dtype, s.n) * magnitude + 1e-7 * (dtype == DType::kF16))
          ++wrong;
      }
      EXPECT_EQ(wrong, 0) << name(dtype) << " [" << size << "]";
      expect_equal_everywhere(s.group, data);
    }
  }
}

TEST(AllReduce, SumsInTheOrderOfTheMembersAndRoundsOnce) {
  Stage s;
  for (std::int64_t size : {5LL, 30'000LL, 1'300'001LL}) {
    const Tensor fp32 = host_tensor(DType::kF32, {size});
    const Tensor bf16 = host_tensor(DType::kBF16, {size});
    for (std::int64_t i = 0; i < size; ++i) {
      put(fp32, i, rough_input(s.me, i));
      put(bf16, i, rough_input(s.me, i));
    }
    const Event first = s.group.all_reduce(fp32, Reduction::kSum, *s.stream);
    s.group.all_reduce(bf16, Reduction::kSum, *s.stream).wait();
    first.wait();
    std::int64_t wrong = 0;
    for (std::int64_t i = 0; i < size; i += std::max<std::int64_t>(1, size / 5000)) {
      auto sum = static_cast<float>(held(DType::kF32, rough_input(0, i)));
      auto short_sum = static_cast<float>(held(DType::kBF16, rough_input(0, i)));
      for (int m = 1; m < s.n; ++m) {
        sum += static_cast<float>(held(DType::kF32, rough_input(m, i)));
        short_sum += static_cast<float>(held(DType::kBF16, rough_input(m, i)));
      }
      wrong += fp32.data<float>()[i] != sum;
      wrong += bf16.data<BFloat16>()[i].bits != to_bfloat16(short_sum).bits;
    }
    EXPECT_EQ(wrong, 0) << size;
  }
}

TEST(AllReduce, TakesTheMaximumAndKeepsANaN) {
  Stage s;
  for (DType dtype : kSummed) {
    const Tensor data = host_tensor(dtype, {1000});
    for (std::int64_t i = 0; i < 1000; ++i) put(data, i, input(s.me, i) - 2);
    const bool floating = dtype != DType::kI64;
    if (floating && s.me == s.n - 1) put(data, 7, NAN);
    s.group.all_reduce(data, Reduction::kMax, *s.stream).wait();
    for (std::int64_t i = 0; i < 1000; ++i) {
      double most = held(dtype, input(0, i) - 2);
      for (int m = 1; m < s.n; ++m) most = std::max(most, held(dtype, input(m, i) - 2));
      if (floating && i == 7) {
        EXPECT_TRUE(std::isnan(get(data, i))) << name(dtype);
      } else {
        EXPECT_EQ(get(data, i), most) << name(dtype) << " at " << i;
      }
    }
  }
}

TEST(AllGather, PutsTheMembersSideBySide) {
  Stage s;
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kU8}) {
    for (std::int64_t rows : {0, 1, 3, 257, 70'001}) {
      const Tensor mine = host_tensor(dtype, {rows, 5});
      const Tensor out = host_tensor(dtype, {rows * s.n, 5});
      for (std::int64_t i = 0; i < rows * 5; ++i) put(mine, i, std::abs(input(s.me, i)));
      s.group.all_gather(out, mine, *s.stream).wait();
      std::int64_t wrong = 0;
      for (int m = 0; m < s.n; ++m) {
        for (std::int64_t i = 0; i < rows * 5; ++i) {
          wrong += get(out, m * rows * 5 + i) != held(dtype, std::abs(input(m, i)));
        }
      }
      EXPECT_EQ(wrong, 0) << name(dtype) << " rows " << rows;
    }
  }
}

TEST(AllGather, WorksWhereTheOwnPartStandsInItsPlace) {
  Stage s;
  const Tensor out = host_tensor(DType::kF32, {s.n * 300'000LL});
  const Tensor mine = out.slice(0, s.me * 300'000LL, 300'000);
  for (std::int64_t i = 0; i < 300'000; ++i) put(mine, i, input(s.me, i));
  s.group.all_gather(out, mine, *s.stream).wait();
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < out.elements(); ++i) {
    wrong += get(out, i) != input(static_cast<int>(i / 300'000), i % 300'000);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(ReduceScatter, GivesEachMemberTheSumOfItsSlice) {
  Stage s;
  for (DType dtype : kSummed) {
    for (std::int64_t rows : {0, 1, 3, 257, 70'001}) {
      const Tensor mine = host_tensor(dtype, {rows, 5});
      const Tensor all = host_tensor(dtype, {rows * s.n, 5});
      for (std::int64_t i = 0; i < all.elements(); ++i) put(all, i, input(s.me, i));
      s.group.reduce_scatter(mine, all, *s.stream).wait();
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < mine.elements(); i += 7) {
        double sum = 0;
        for (int m = 0; m < s.n; ++m) sum += held(dtype, input(m, s.me * rows * 5 + i));
        // These sums are exact in fp32: only the last rounding may differ from fp64.
        wrong += get(mine, i) != (dtype == DType::kI64 ? sum : held(dtype, sum));
      }
      EXPECT_EQ(wrong, 0) << name(dtype) << " rows " << rows;
    }
  }
}

// As ZeRO calls them: the own part is in its place in the whole.
TEST(Collectives, GatherAndScatterInPlace) {
  Stage s;
  for (std::int64_t part : {0, 1, 16, 1001, 170'003}) {
    const Tensor flat = host_tensor(DType::kF32, {part * s.n});
    const Tensor own = flat.slice(0, part * s.me, part);
    for (std::int64_t i = 0; i < flat.elements(); ++i) put(flat, i, input(s.me, i));
    const auto wrong = [&](std::int64_t begin, std::int64_t end) {
      std::int64_t count = 0;
      for (std::int64_t i = begin; i < end; ++i) {
        double sum = 0;
        for (int m = 0; m < s.n; ++m) sum += input(m, i);
        count += get(flat, i) != sum;
      }
      return count;
    };
    s.group.reduce_scatter(own, flat, *s.stream).wait();
    EXPECT_EQ(wrong(part * s.me, part * (s.me + 1)), 0) << "scatter " << part;
    s.group.all_gather(flat, own, *s.stream).wait();
    EXPECT_EQ(wrong(0, flat.elements()), 0) << "gather " << part;
  }
}

// A chain over two groups is started at once: the second collective waits for the first one's
// event, whatever the pace of the ranks.
TEST(Collectives, FollowEventsOfAnotherGroup) {
  Stage s;
  std::vector<int> all(static_cast<std::size_t>(s.n));
  std::iota(all.begin(), all.end(), 0);
  const auto other = world().make_group(all, "other");
  const Tensor data = host_tensor(DType::kF32, {100'000});
  for (int round = 0; round < 5; ++round) {
    for (std::int64_t i = 0; i < data.elements(); ++i) put(data, i, s.me + 1);
    if (s.me == round % s.n) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const Event first = s.group.all_reduce(data, Reduction::kSum, *s.stream);
    const Event second = other->all_reduce(data, Reduction::kSum, {*s.stream, {first, Event()}});
    second.wait();
    const double once = s.n * (s.n + 1) / 2.0;
    EXPECT_EQ(get(data, 0), once * s.n);
    EXPECT_EQ(get(data, data.elements() - 1), once * s.n);
  }
  everyone().barrier();
}

TEST(Broadcast, CopiesTheRootsTensor) {
  Stage s;
  for (int root = 0; root < s.n; ++root) {
    for (std::int64_t size : kSizes) {
      const Tensor data = host_tensor(DType::kBF16, {size});
      for (std::int64_t i = 0; i < size; ++i) put(data, i, input(s.me, i, 5));
      s.group.broadcast(data, root, *s.stream).wait();
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < size; ++i) wrong += get(data, i) != input(root, i, 5);
      EXPECT_EQ(wrong, 0) << root << " " << size;
    }
  }
}

TEST(Order, CollectivesThatAreNotWaitedForRunOneAfterTheOther) {
  Stage s;
  const Tensor data = host_tensor(DType::kF64, {1000});
  for (std::int64_t i = 0; i < 1000; ++i) put(data, i, 1);
  Event last;
  for (int k = 0; k < 20; ++k) last = s.group.all_reduce(data, Reduction::kSum, *s.stream);
  last.wait();
  EXPECT_EQ(get(data, 999), std::pow(s.n, 20));
}

TEST(Order, TheSameRunTwiceGivesTheSameBits) {
  Stage s;
  std::string first;
  for (int run = 0; run < 3; ++run) {
    const Tensor data = host_tensor(DType::kF32, {400'003});
    for (std::int64_t i = 0; i < data.elements(); ++i) put(data, i, rough_input(s.me, i));
    if (run == 1 && s.me == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    s.group.all_reduce(data, Reduction::kSum, *s.stream).wait();
    if (run == 0) first = bytes_of(data);
    EXPECT_TRUE(bytes_of(data) == first) << "run " << run;
  }
}

TEST(Groups, OverlappingGroupsSumTheirOwnMembers) {
  Stage s;
  // Pairs (2k, 2k+1), and the ranks of equal parity: each pair crosses each parity in one rank.
  const int partner = s.me ^ 1;
  const std::vector<int> pair = {std::min(s.me, partner), std::max(s.me, partner)};
  std::vector<int> parity;
  for (int r = s.me % 2; r < s.n; r += 2) parity.push_back(r);
  auto pair_group = world().make_group(pair, "pair");
  auto parity_group = world().make_group(parity, "parity");
  auto again = world().make_group(pair, "pair again");
  const Tensor a = host_tensor(DType::kI64, {100'000});
  const Tensor b = host_tensor(DType::kI64, {100'000});
  const Tensor c = host_tensor(DType::kI64, {1});
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    a.data<std::int64_t>()[i] = b.data<std::int64_t>()[i] = (s.me + 1) * i;
  }
  c.data<std::int64_t>()[0] = s.me;
  const Event pair_sum = pair_group->all_reduce(a, Reduction::kSum, *s.stream);
  const Event parity_sum = parity_group->all_reduce(b, Reduction::kSum, *s.stream);
  again->all_reduce(c, Reduction::kMax, *s.stream).wait();
  parity_sum.wait();
  pair_sum.wait();
  std::int64_t expected = 0;
  for (int r : parity) expected += r + 1;
  EXPECT_EQ(a.data<std::int64_t>()[99'999], (pair[0] + pair[1] + 2) * 99'999LL);
  EXPECT_EQ(b.data<std::int64_t>()[99'999], expected * 99'999LL);
  EXPECT_EQ(c.data<std::int64_t>()[0], pair[1]);
}

TEST(Messages, AllToAllInEverySize) {
  Stage s;
  for (std::int64_t size : {0LL, 1LL, 1000LL, 200'001LL, 1'000'003LL}) {
    std::vector<Tensor> out;
    std::vector<Tensor> in;
    std::vector<Event> events;
    for (int m = 0; m < s.n; ++m) {
      out.push_back(host_tensor(DType::kF32, {size}));
      in.push_back(host_tensor(DType::kF32, {size}));
      for (std::int64_t i = 0; i < size; ++i) put(out[m], i, input(s.me, i, m));
    }
    for (int m = 0; m < s.n; ++m) {
      events.push_back(s.group.send(out[m], m, 3, *s.stream));
      events.push_back(s.group.receive(in[m], m, 3, *s.stream));
    }
    for (const Event& event : events) event.wait();
    std::int64_t wrong = 0;
    for (int m = 0; m < s.n; ++m) {
      for (std::int64_t i = 0; i < size; ++i) wrong += get(in[m], i) != input(m, i, s.me);
    }
    EXPECT_EQ(wrong, 0) << size;
  }
}

TEST(Messages, AReceiveAskedForEarlyHoldsUpNothing) {
  Stage s;
  const int next = (s.me + 1) % s.n;
  const int before = (s.me + s.n - 1) % s.n;
  const Tensor in = host_tensor(DType::kF64, {50'000});
  const Tensor out = host_tensor(DType::kF64, {50'000});
  const Event received = s.group.receive(in, before, 0, *s.stream);
  const Tensor sum = host_tensor(DType::kF32, {300'000});
  for (int k = 0; k < 3; ++k) {
    for (std::int64_t i = 0; i < sum.elements(); ++i) put(sum, i, 1);
    s.group.all_reduce(sum, Reduction::kSum, *s.stream).wait();
    EXPECT_EQ(get(sum, 123'456), s.n);
  }
  EXPECT_FALSE(received.complete());
  s.group.barrier();
  for (std::int64_t i = 0; i < 50'000; ++i) put(out, i, s.me + i);
  const Event sent = s.group.send(out, next, 0, *s.stream);
  received.wait();
  sent.wait();
  EXPECT_EQ(get(in, 49'999), before + 49'999);
}

TEST(Messages, ASendPassesACollectiveThatWaitsForItsReceiver) {
  Stage s;
  // Rank 0 enters the all-reduce first and sends later; the others come only with its message.
  const Tensor word = host_tensor(DType::kI64, {1});
  const Tensor sum = host_tensor(DType::kF32, {10});
  if (s.me == 0) {
    const Event reduced = s.group.all_reduce(sum, Reduction::kSum, *s.stream);
    std::vector<Event> sent;
    word.data<std::int64_t>()[0] = 42;
    for (int m = 1; m < s.n; ++m) sent.push_back(s.group.send(word, m, 9, *s.stream));
    for (const Event& event : sent) event.wait();
    reduced.wait();
  } else {
    s.group.receive(word, 0, 9, *s.stream).wait();
    s.group.all_reduce(sum, Reduction::kSum, *s.stream).wait();
  }
  EXPECT_EQ(word.data<std::int64_t>()[0], 42);
}

TEST(Messages, TagsMatchInAnyOrderAndKeepTheirOwn) {
  Stage s;
  const int next = (s.me + 1) % s.n;
  const int before = (s.me + s.n - 1) % s.n;
  constexpr int kTags = 4;
  constexpr int kEach = 3;
  std::vector<Tensor> out;
  std::vector<Tensor> in;
  std::vector<Event> events;
  for (int tag = 0; tag < kTags; ++tag) {
    for (int k = 0; k < kEach; ++k) {
      const std::int64_t size = 40'000 * tag + 1;
      out.push_back(host_tensor(DType::kI64, {size}));
      in.push_back(host_tensor(DType::kI64, {size}));
      for (std::int64_t i = 0; i < size; ++i) {
        out.back().data<std::int64_t>()[i] = s.me * 1'000'000 + tag * 1000 + k;
      }
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    events.push_back(s.group.send(out[i], next, static_cast<int>(i) / kEach, *s.stream));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int tag = kTags - 1; tag >= 0; --tag) {
    for (int k = 0; k < kEach; ++k) {
      const Tensor& t = in[tag * kEach + k];
      const Event received = s.group.receive(t, before, tag, *s.stream);
      if (tag % 2 == 0) received.wait();
      events.push_back(received);
    }
  }
  for (const Event& event : events) event.wait();
  for (int tag = 0; tag < kTags; ++tag) {
    for (int k = 0; k < kEach; ++k) {
      const Tensor& t = in[tag * kEach + k];
      EXPECT_EQ(t.data<std::int64_t>()[t.elements() - 1], before * 1'000'000 + tag * 1000 + k);
    }
  }
}

TEST(Messages, BothDirectionsAtOnceWithMoreThanTheRingsHold) {
  Stage s;
  const int partner = s.me ^ 1;
  std::vector<Tensor> out;
  std::vector<Tensor> in;
  std::vector<Event> events;
  for (int k = 0; k < 8; ++k) {
    out.push_back(host_tensor(DType::kF32, {500'000}));
    in.push_back(host_tensor(DType::kF32, {500'000}));
    for (std::int64_t i = 0; i < 500'000; i += 1000) put(out[k], i, input(s.me, i, k));
    events.push_back(s.group.send(out[k], partner, 1, *s.stream));
  }
  for (int k = 0; k < 8; ++k) events.push_back(s.group.receive(in[k], partner, 1, *s.stream));
  for (const Event& event : events) event.wait();
  std::int64_t wrong = 0;
  for (int k = 0; k < 8; ++k) {
    for (std::int64_t i = 0; i < 500'000; i += 1000) wrong += get(in[k], i) != input(partner, i, k);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(AllToAll, GivesEachMemberItsSliceOfEveryOther) {
  Stage s;
  for (const std::int64_t rows : {0, 1, 5, 300'000}) {
    const Tensor mine = host_tensor(DType::kF32, {s.n * rows});
    const Tensor out = host_tensor(DType::kF32, {s.n * rows});
    for (std::int64_t i = 0; i < s.n * rows; ++i) put(mine, i, input(s.me, i));
    s.group.all_to_all(out, mine, *s.stream).wait();
    std::int64_t wrong = 0;
    for (int m = 0; m < s.n; ++m) {
      for (std::int64_t i = 0; i < rows; ++i)
        wrong += get(out, m * rows + i) != input(m, s.me * rows + i);
    }
    EXPECT_EQ(wrong, 0) << rows << " rows";
  }
}

// Counts of 0 to many rows, also of a member to itself; the room behind the rows stays as it is.
TEST(AllToAllRows, GivesEachMemberItsRowsOfEveryOther) {
  Stage s;
  constexpr std::int64_t kWidth = 3;
  const auto counts_of = [&](std::int64_t most) {
    RowCounts counts(s.n);
    for (int from = 0; from < s.n; ++from) {
      for (int to = 0; to < s.n; ++to) counts.at(from, to) = (5 * from + 3 * to + 2) % 4 * most / 3;
    }
    return counts;
  };
  RowCounts only_own(s.n);
  for (int m = 0; m < s.n; ++m) only_own.at(m, m) = 200'000;
  for (const RowCounts& counts :
       {counts_of(0), counts_of(3), counts_of(100'000), counts_of(7).reversed(), only_own}) {
    const std::int64_t sent = counts.sent(s.me), received = counts.received(s.me);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const Tensor mine = host_tensor(dtype, {sent + 2, kWidth});
      const Tensor out = host_tensor(dtype, {received + 2, kWidth});
      for (std::int64_t i = 0; i < mine.elements(); ++i) put(mine, i, input(s.me, i));
      for (std::int64_t i = 0; i < out.elements(); ++i) put(out, i, 7);
      const TrafficCounts before = s.group.traffic();
      s.group.all_to_all_rows(out, mine, counts, *s.stream).wait();
      std::int64_t wrong = 0, i = 0;
      for (int m = 0; m < s.n; ++m) {
        const std::int64_t first = counts.first_sent(m, s.me) * kWidth;
        for (std::int64_t j = 0; j < counts.at(m, s.me) * kWidth; ++j)
          wrong += get(out, i++) != input(m, first + j);
      }
      ASSERT_EQ(i, received * kWidth);
      for (; i < out.elements(); ++i) wrong += get(out, i) != 7;
      EXPECT_EQ(wrong, 0) << sent << " rows sent";
      const TrafficCounts after = s.group.traffic();
      const std::int64_t row = kWidth * size_bytes(dtype), own = counts.at(s.me, s.me);
      EXPECT_EQ(after.all_to_all_bytes - before.all_to_all_bytes, (sent - own) * row);
      EXPECT_EQ(after.received_bytes - before.received_bytes, (received - own) * row);
    }
  }
}

TEST(HostBytes, AreGatheredInOrderOfRank) {
  Stage s;
  const std::string mine(static_cast<std::size_t>(s.me) * 1000, static_cast<char>('a' + s.me));
  const auto all = s.group.gather_bytes(mine);
  ASSERT_EQ(std::ssize(all), s.n);
  for (int m = 0; m < s.n; ++m) {
    EXPECT_EQ(all[m], std::string(static_cast<std::size_t>(m) * 1000, static_cast<char>('a' + m)));
  }
  s.group.barrier();
}

// The last rank destroys its tensor before the others join, as an exception does.
TEST(Memory, OfAnOpenOperationIsKeptUntilItEnds) {
  Stage s;
  const bool last = s.me == s.n - 1;
  const int sender = 0;
  const Tensor word = host_tensor(DType::kI64, {1});
  for (const bool collective : {true, false}) {
    Tensor data = host_tensor(DType::kF32, {1000});
    put(data, 999, 1);
    if (last) {
      const std::weak_ptr<Storage> memory = data.storage();
      const Event open = collective ? s.group.all_reduce(data, Reduction::kSum, *s.stream)
                                    : s.group.receive(data, sender, 4, *s.stream);
      data = {};
      EXPECT_FALSE(memory.expired());
      const Tensor other = host_tensor(DType::kF32, {1000});  // at that address, if it were free
      std::vector<Event> sent;
      for (int m = 0; m < s.n - 1; ++m) sent.push_back(s.group.send(word, m, 5, *s.stream));
      for (const Event& event : sent) event.wait();
      open.wait();
      EXPECT_TRUE(memory.expired());
      for (std::int64_t i = 0; i < 1000; ++i) ASSERT_EQ(get(other, i), 0) << i;
    } else {
      s.group.receive(word, s.n - 1, 5, *s.stream).wait();
      if (collective) {
        s.group.all_reduce(data, Reduction::kSum, *s.stream).wait();
        EXPECT_EQ(get(data, 999), s.n);
      } else if (s.me == sender) {
        s.group.send(data, s.n - 1, 4, *s.stream).wait();
      }
    }
    s.group.barrier();
  }
}

TEST(Traffic, IsWhatTheFormulasSay) {
  Stage s;
  const std::int64_t count = 12'000LL * s.n;
  const Tensor data = host_tensor(DType::kF32, {count});
  const Tensor mine = host_tensor(DType::kF32, {count / s.n});
  const TrafficCounts before = s.group.traffic();
  s.group.all_reduce(data, Reduction::kSum, *s.stream).wait();
  s.group.all_gather(data, mine, *s.stream).wait();
  s.group.reduce_scatter(mine, data, *s.stream).wait();
  s.group.broadcast(data, 0, *s.stream).wait();
  const Tensor exchanged = host_tensor(DType::kF32, {count});
  s.group.all_to_all(exchanged, data, *s.stream).wait();
  const Event sent = s.group.send(mine, s.me ^ 1, 0, *s.stream);
  s.group.receive(mine, s.me ^ 1, 0, *s.stream).wait();
  sent.wait();
  const TrafficCounts after = s.group.traffic();
  const std::int64_t bytes = count * 4;
  EXPECT_EQ(after.all_reduce_bytes - before.all_reduce_bytes, 2 * bytes / s.n * (s.n - 1));
  EXPECT_EQ(after.all_gather_bytes - before.all_gather_bytes, bytes / s.n * (s.n - 1));
  EXPECT_EQ(after.reduce_scatter_bytes - before.reduce_scatter_bytes, bytes / s.n * (s.n - 1));
  EXPECT_EQ(after.broadcast_bytes - before.broadcast_bytes, s.me == 0 ? bytes * (s.n - 1) : 0);
  EXPECT_EQ(after.point_to_point_bytes - before.point_to_point_bytes, bytes / s.n);
  EXPECT_EQ(after.all_to_all_bytes - before.all_to_all_bytes, bytes / s.n * (s.n - 1));
  EXPECT_EQ(after.collectives - before.collectives, 5);
}

}  // namespace piton::ranks
