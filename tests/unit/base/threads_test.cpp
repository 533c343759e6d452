#include "base/threads.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <set>
#include <stdexcept>
#include <thread>

#include "support/errors.h"
#include "support/no_more_threads.h"

namespace piton {
namespace {

TEST(ThreadPool, RunsEachPartOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t parts : {0, 1, 2, 4, 17}) {
      std::vector<int> times(static_cast<std::size_t>(parts));  // written without locks: TSan looks
      std::vector<int> thread(static_cast<std::size_t>(parts));
      pool.run(parts, [&](std::int64_t part) {
        ++times[static_cast<std::size_t>(part)];
        thread[static_cast<std::size_t>(part)] = ThreadPool::thread_index();
      });
      for (std::int64_t part = 0; part < parts; ++part) {
        EXPECT_EQ(times[static_cast<std::size_t>(part)], 1);
        EXPECT_LT(thread[static_cast<std::size_t>(part)], threads);
      }
    }
  }
}

// Part 1 ends only when all others are done, those of its own thread among them.
TEST(ThreadPool, GivesThePartsOfAThreadThatIsHeldUpToOthers) {
  ThreadPool pool(3);
  constexpr std::int64_t kParts = 30;
  std::atomic<std::int64_t> done{0};
  pool.run(kParts, [&](std::int64_t part) {
    if (part == 1) {
      while (done < kParts - 1) std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_EQ(done, kParts);
}

// Jobs that follow one another closely, with workers that arrive late at the last one.
TEST(ThreadPool, RunsEachPartOnceInManyShortJobs) {
  ThreadPool pool(4);
  std::vector<int> times(6);
  for (int job = 0; job < 2000; ++job) {
    pool.run(1 + job % 6, [&](std::int64_t part) { ++times[static_cast<std::size_t>(part)]; });
  }
  EXPECT_EQ(times, (std::vector<int>{2000, 1666, 1332, 999, 666, 333}));
}

// What a part wrote is seen by the caller and by the parts of the next job.
TEST(ThreadPool, OrdersOneJobAfterTheOther) {
  ThreadPool pool(4);
  std::vector<std::int64_t> values(64, 0);
  for (int job = 0; job < 2000; ++job) {
    pool.run(64, [&](std::int64_t part) {
      values[static_cast<std::size_t>(part)] += values[static_cast<std::size_t>(part)] == job;
    });
    std::rotate(values.begin(), values.begin() + 7, values.end());
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), 64 * 2000);
}

TEST(ThreadPool, WakesWorkersThatFellAsleep) {
  ThreadPool pool(3);
  std::atomic<int> parts = 0;
  for (int job = 0; job < 5; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.run(3, [&](std::int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++parts;
    });
  }
  EXPECT_EQ(parts, 15);
}

TEST(ThreadPool, RethrowsTheLowestFailureAfterAllPartsHaveEnded) {
  ThreadPool pool(3);
  for (int again = 0; again < 3; ++again) {
    std::atomic<int> ended = 0;
    try {
      pool.run(12, [&](std::int64_t part) {
        ++ended;
        if (part >= 4) throw std::runtime_error(std::to_string(part));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "4");
    }
    EXPECT_EQ(ended, 12);
    pool.run(3, [&](std::int64_t) { ++ended; });  // the failure is forgotten
    EXPECT_EQ(ended, 15);
  }
}

TEST(ThreadPool, RunsAJobWithinAPartOnTheThreadOfThePart) {
  ThreadPool pool(2);
  std::vector<int> seen(2 * 8, -1);
  std::vector<int> outer_thread(2);
  pool.run(2, [&](std::int64_t outer) {
    outer_thread[static_cast<std::size_t>(outer)] = ThreadPool::thread_index();
    pool.run(8, [&](std::int64_t inner) {
      seen[static_cast<std::size_t>(outer * 8 + inner)] = ThreadPool::thread_index();
    });
  });
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], outer_thread[i / 8]);
}

TEST(ThreadPool, WithinAPartRunsAllPartsThoughOneFails) {
  ThreadPool pool(2);
  int ended = 0;
  EXPECT_THROW(pool.run(1,
                        [&](std::int64_t) {
                          pool.run(5, [&](std::int64_t part) {
                            ++ended;
                            if (part == 1) throw std::runtime_error("inner");
                          });
                        }),
               std::runtime_error);
  EXPECT_EQ(ended, 5);
}

TEST(ThreadPool, TakesJobsFromTwoThreadsOneAfterTheOther) {
  ThreadPool pool(3);
  std::int64_t sum = 0;  // no lock: jobs must not overlap
  const auto work = [&] {
    for (int job = 0; job < 200; ++job) {
      std::vector<std::int64_t> parts(6);
      pool.run(6, [&](std::int64_t part) {
        parts[static_cast<std::size_t>(part)] = part;
        if (part == 0) ++sum;
      });
      EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), std::int64_t{0}), 15);
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(sum, 400);
}

TEST(ThreadPool, StartsEveryThreadWithTheGivenFunction) {
  std::mutex mutex;
  std::set<std::thread::id> ids;
  int times = 0;
  ThreadPool pool(4, {}, [&] {
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
    ++times;
  });
  EXPECT_EQ(times, 4);
  EXPECT_EQ(ids.size(), 4U);
  EXPECT_TRUE(ids.contains(std::this_thread::get_id()));
}

TEST(ThreadPool, WhoseStartFailsThrowsAndEndsItsThreads) {
  EXPECT_THROW(ThreadPool(3, {}, [] { throw std::runtime_error("no"); }), std::runtime_error);
}

TEST(ThreadPool, PinsEachThreadToItsCoreAndFreesTheCallerAtItsEnd) {
  const std::vector<int> cores = available_cores();
  if (cores.size() < 2) GTEST_SKIP() << "one processor only";
  {
    ThreadPool pool(2, {cores[1], cores[0]});
    std::vector<int> on(2);
    std::vector<std::vector<int>> masks(2);
    std::atomic<int> arrived{0};  // neither thread takes the other's part
    pool.run(2, [&](std::int64_t) {
      ++arrived;
      while (arrived < 2) std::this_thread::yield();
      on[static_cast<std::size_t>(ThreadPool::thread_index())] = ::sched_getcpu();
      masks[static_cast<std::size_t>(ThreadPool::thread_index())] = available_cores();
    });
    EXPECT_EQ(on, (std::vector<int>{cores[1], cores[0]}));
    EXPECT_EQ(masks, (std::vector<std::vector<int>>{{cores[1]}, {cores[0]}}));
  }
  EXPECT_EQ(available_cores(), cores);
}

TEST(ThreadPool, ThatGetsNoThreadSaysWhatToDo) {
  const test::NoMoreThreads none;
  const std::string message = message_of(Fault::kUsage, [] { ThreadPool pool(3); });
  EXPECT_NE(message.find("threads: the system refused thread 2 of 3"), std::string::npos)
      << message;
}

TEST(ThreadPool, RefusesCoresThatAreNotThere) {
  const std::string message = message_of(Fault::kUsage, [] { ThreadPool pool(1, {8000}); });
  EXPECT_NE(message.find("threads: cannot pin a thread to processor 8000"), std::string::npos);
  message_of(Fault::kUsage, [] { ThreadPool pool(0); });
}

TEST(CoresOfRank, CutsTheCoresWithoutOverlapOrRest) {
  std::vector<int> cores(13);
  std::iota(cores.begin(), cores.end(), 100);
  for (int ranks = 1; ranks <= 13; ++ranks) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto mine = cores_of_rank(cores, rank, ranks);
      EXPECT_GE(mine.size(), 13U / static_cast<unsigned>(ranks));
      EXPECT_LE(mine.size(), 13U / static_cast<unsigned>(ranks) + 1);
      all.insert(all.end(), mine.begin(), mine.end());
    }
    EXPECT_EQ(all, cores);
  }
}

TEST(CoresOfRank, SharesCoresRoundRobinAmongMoreRanks) {
  const std::vector<int> cores = {4, 6};
  EXPECT_EQ(cores_of_rank(cores, 0, 5), (std::vector<int>{4}));
  EXPECT_EQ(cores_of_rank(cores, 3, 5), (std::vector<int>{6}));
  EXPECT_EQ(cores_of_rank(cores, 4, 5), (std::vector<int>{4}));
}

}  // namespace
}  // namespace piton
