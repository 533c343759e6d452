// Collectives that do not take place: what each kind leaves, and which ones are counted.
#include "comm/faulty_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "device/host_device.h"
#include "support/thread_world.h"

namespace piton {
namespace {

using testing::ElementsAre;

constexpr std::array<int, 2> kBoth{0, 1};

std::vector<float> floats(const Tensor& tensor) {
  return {tensor.data<float>(), tensor.data<float>() + tensor.elements()};
}

Tensor tensor_of(std::vector<float> values) {
  const Tensor tensor = host_tensor(DType::kF32, {std::ssize(values)});
  std::ranges::copy(values, tensor.data<float>());
  return tensor;
}

TEST(FaultyWorld, LeavesEachMemberWhatItHasWithoutTheCollective) {
  test::run_ranks(2, [](World& world) {
    HostDevice device;
    const auto stream = device.make_stream();
    FaultyWorld faulty(world, device);
    const auto group = faulty.make_group(kBoth, "data");
    const float own = static_cast<float>(world.rank() + 1);
    faulty.begin_step({{"data", "all-reduce", 0},
                       {"data", "all-gather", 0},
                       {"data", "reduce-scatter", 0},
                       {"data", "all-to-all", 0},
                       {"data", "all-to-all", 1},
                       {"data", "broadcast", 0},
                       {"data", "gather-bytes", 0},
                       {"tensor", "all-reduce", 1}});
    const Tensor sum = tensor_of({own});
    group->all_reduce(sum, Reduction::kSum, *stream).wait();
    EXPECT_THAT(floats(sum), ElementsAre(own));
    const Tensor gathered = tensor_of({9, 9});
    group->all_gather(gathered, tensor_of({own}), *stream).wait();
    EXPECT_THAT(floats(gathered),
                ElementsAre(world.rank() == 0 ? own : 0, world.rank() == 1 ? own : 0));
    const Tensor scattered = tensor_of({9});
    group->reduce_scatter(scattered, tensor_of({own, 10 * own}), *stream).wait();
    EXPECT_THAT(floats(scattered), ElementsAre(world.rank() == 0 ? own : 10 * own));
    const Tensor exchanged = tensor_of({9, 9});
    group->all_to_all(exchanged, tensor_of({own, 10 * own}), *stream).wait();
    EXPECT_THAT(floats(exchanged),
                ElementsAre(world.rank() == 0 ? own : 0, world.rank() == 1 ? 10 * own : 0));
    // Each sends two rows to the first member and one to the second one.
    RowCounts counts(2);
    for (int m = 0; m < 2; ++m) {
      counts.at(m, 0) = 2;
      counts.at(m, 1) = 1;
    }
    const Tensor rows = tensor_of({9, 9, 9, 9, 9}).reshape({5, 1});
    group
        ->all_to_all_rows(rows, tensor_of({own, 10 * own, 100 * own}).reshape({3, 1}), counts,
                          *stream)
        .wait();
    if (world.rank() == 0) {
      EXPECT_THAT(floats(rows), ElementsAre(own, 10 * own, 0, 0, 9));
    } else {
      EXPECT_THAT(floats(rows), ElementsAre(0, 100 * own, 9, 9, 9));
    }
    const Tensor copied = tensor_of({own});
    group->broadcast(copied, 0, *stream).wait();
    EXPECT_THAT(floats(copied), ElementsAre(own));
    EXPECT_THAT(group->gather_bytes(std::to_string(world.rank())),
                ElementsAre(std::to_string(world.rank()), std::to_string(world.rank())));
    EXPECT_EQ(faulty.left_out(), 7);
    // The next ones take place.
    group->all_reduce(sum, Reduction::kSum, *stream).wait();
    EXPECT_THAT(floats(sum), ElementsAre(3));
  });
}

// In place, as ZeRO calls them: the own part is in the whole.
TEST(FaultyWorld, LeavesTheOwnPartInItsPlace) {
  test::run_ranks(2, [](World& world) {
    HostDevice device;
    const auto stream = device.make_stream();
    FaultyWorld faulty(world, device);
    const auto group = faulty.make_group(kBoth, "data");
    faulty.begin_step({{"data", "all-gather", 0}, {"data", "reduce-scatter", 0}});
    const Tensor whole = tensor_of({4, 5});
    const Tensor own = whole.slice(0, world.rank(), 1);
    group->reduce_scatter(own, whole, *stream).wait();
    EXPECT_THAT(floats(whole), ElementsAre(4, 5));
    group->all_gather(whole, own, *stream).wait();
    EXPECT_THAT(floats(whole), ElementsAre(world.rank() == 0 ? 4 : 0, world.rank() == 1 ? 5 : 0));
  });
}

TEST(FaultyWorld, CountsByGroupAndKindFromTheBeginningOfAStep) {
  test::run_ranks(2, [](World& world) {
    HostDevice device;
    const auto stream = device.make_stream();
    FaultyWorld faulty(world, device);
    const auto group = faulty.make_group(kBoth, "data");
    const std::array<int, 1> self{world.rank()};
    const auto alone = faulty.make_group(self, "alone");
    const Tensor data = tensor_of({1});
    for (int step = 0; step < 2; ++step) {
      faulty.begin_step({{"data", "all-reduce", 1}});
      for (int i = 0; i < 2; ++i) group->all_reduce(data, Reduction::kSum, *stream).wait();
      alone->all_reduce(data, Reduction::kSum, *stream).wait();
      group->gather_bytes("");
      EXPECT_THAT(faulty.seen(), ElementsAre(CollectiveName{"data", "all-reduce", 0},
                                             CollectiveName{"data", "all-reduce", 1},
                                             CollectiveName{"data", "gather-bytes", 0}));
      EXPECT_EQ(faulty.left_out(), 1);
    }
    EXPECT_THAT(floats(data), ElementsAre(4)) << "two sums of the four";
  });
}

}  // namespace
}  // namespace piton
