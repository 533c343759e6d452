#include "train/run/memory_check.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace piton {
namespace {

RankMemory rank_on(const std::string& host, std::int64_t bytes, std::int64_t left) {
  RankMemory memory{.host = host, .left_bytes = left};
  memory.planned.peak_total_bytes = bytes;
  memory.planned.peak_bytes[static_cast<std::size_t>(MemoryKind::kOptimizer)] = bytes / 4 * 3;
  memory.planned.peak_bytes[static_cast<std::size_t>(MemoryKind::kParameters)] = bytes / 4;
  return memory;
}

constexpr std::int64_t kGigabyte = 1'000'000'000;

TEST(MemoryCheck, SurvivesEncoding) {
  const RankMemory memory = rank_on("a host", 8 * kGigabyte, 9 * kGigabyte);
  const RankMemory decoded = decode_rank_memory(encode(memory));
  EXPECT_EQ(decoded.host, "a host");
  EXPECT_EQ(decoded.planned.peak_total_bytes, 8 * kGigabyte);
  EXPECT_EQ(decoded.planned.peak_bytes, memory.planned.peak_bytes);
  EXPECT_EQ(decoded.left_bytes, 9 * kGigabyte);
}

TEST(MemoryCheck, AddsUpTheRanksOfEachHost) {
  const RankMemory small = rank_on("a", 8 * kGigabyte, 17 * kGigabyte);
  const RankMemory other = rank_on("b", 16 * kGigabyte, 16 * kGigabyte);
  EXPECT_NO_THROW(check_memory({small, small, other}));
  EXPECT_THROW(check_memory({small, small, small, other}), Error);
  EXPECT_THROW(check_memory({small, other, other}), Error);
}

TEST(MemoryCheck, NamesTheHostTheNeedAndItsKinds) {
  const RankMemory rank = rank_on("node7", 8 * kGigabyte, 10 * kGigabyte);
  try {
    check_memory({rank, rank});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kMemory);
    const std::string message = error.what();
    EXPECT_NE(message.find("memory of node7: the run needs 16.0 GB for 2 ranks (optimizer 12.0, "
                           "parameters 4.0), and 10.0 GB are left"),
              std::string::npos)
        << message;
  }
}

}  // namespace
}  // namespace piton
