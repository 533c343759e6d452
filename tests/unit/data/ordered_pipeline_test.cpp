#include "data/preprocess/ordered_pipeline.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/errors.h"
#include "support/no_more_threads.h"

namespace piton {
namespace {

using Pipeline = OrderedPipeline<int, int>;

// Pieces 0 .. pieces-1 of weight 1.
std::function<std::optional<Pipeline::Made>()> counted(int pieces) {
  return [pieces, next = 0]() mutable -> std::optional<Pipeline::Made> {
    if (next == pieces) return {};
    return Pipeline::Made{next++, 1};
  };
}

TEST(OrderedPipeline, TakesInTheOrderOfMakingHoweverLongTheWorkTakes) {
  for (const int workers : {1, 2, 5}) {
    Pipeline pipeline;
    int taken = 0;
    pipeline.run(
        workers, 100, counted(200),
        [](int, int piece) {
          if (piece % 7 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return piece * 2;
        },
        [&](int result) { EXPECT_EQ(result, 2 * taken++); });
    EXPECT_EQ(taken, 200);
  }
}

TEST(OrderedPipeline, OneWorkerIsTheCallingThread) {
  Pipeline pipeline;
  std::set<std::thread::id> threads;
  const auto make = [&, made = counted(10)]() mutable {
    threads.insert(std::this_thread::get_id());
    return made();
  };
  pipeline.run(
      1, 100, make,
      [&](int, int piece) {
        threads.insert(std::this_thread::get_id());
        return piece;
      },
      [&](int) { threads.insert(std::this_thread::get_id()); });
  EXPECT_EQ(threads, std::set<std::thread::id>{std::this_thread::get_id()});
}

// Piece 0 is slow: the others may be made only as far as the limit lets them.
TEST(OrderedPipeline, HoldsNoMoreThanTheLimit) {
  Pipeline pipeline;
  std::atomic<int> in_flight = 0;
  std::atomic<int> most = 0;
  pipeline.run(
      4, 6, counted(50),
      [&](int, int piece) {
        const int now = ++in_flight;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        if (piece == 0) std::this_thread::sleep_for(std::chrono::milliseconds(50));
        return piece;
      },
      [&](int) { --in_flight; });
  EXPECT_GT(most, 1);
  EXPECT_LE(most, 6);
}

TEST(OrderedPipeline, APieceAboveTheLimitPassesAlone) {
  Pipeline pipeline;
  int taken = 0;
  pipeline.run(
      3, 0, counted(20), [](int, int piece) { return piece; }, [&](int) { ++taken; });
  EXPECT_EQ(taken, 20);
}

TEST(OrderedPipeline, AFaultLeavesInItsPlaceWhereverItWasThrown) {
  for (const int workers : {1, 4}) {
    for (const std::string where : {"make", "work", "take"}) {
      Pipeline pipeline;
      int taken = 0;
      const auto fault = [&](const char* here, int piece) {
        if (where == here && piece == 30) throw std::runtime_error(where);
      };
      const auto make = [&, made = counted(100)]() mutable {
        auto one = made();
        if (one) fault("make", one->piece);
        return one;
      };
      const auto work = [&](int, int piece) {
        fault("work", piece);
        if (piece == 29) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return piece;
      };
      const auto take = [&](int result) {
        fault("take", result);
        ++taken;
      };
      std::string said;
      try {
        pipeline.run(workers, 1000, make, work, take);
      } catch (const std::runtime_error& error) {
        said = error.what();
      }
      EXPECT_EQ(said, where);
      EXPECT_EQ(taken, 30) << where;
    }
  }
}

TEST(OrderedPipeline, ThatGetsNoThreadSaysSoAtOnce) {
  int taken = 0;
  const std::string message = message_of(Fault::kUsage, [&] {
    const test::NoMoreThreads none;
    Pipeline().run(
        3, 100, counted(20), [](int, int piece) { return piece; }, [&](int) { ++taken; });
  });
  EXPECT_NE(message.find("the system refused thread 2 of 3"), std::string::npos) << message;
  EXPECT_EQ(taken, 0);
}

}  // namespace
}  // namespace piton
