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

// What fit_memory() finds: 8 GB left, and so much needed with packed forms and without.
struct Found {
  std::string line;
  FrozenForms forms = FrozenForms::kFewest;
};
Found fit(const std::string& frozen_weights, std::int64_t packed, std::int64_t rows) {
  LoraOptions lora;
  if (!frozen_weights.empty()) {
    lora.target_modules = {"q_proj"};
    lora.frozen_weights = frozen_weights;
  }
  SessionSettings settings{.frozen_forms = lora.frozen_forms()};
  Found found;
  found.line = fit_memory(lora, settings, [&] {
    const bool fewer = settings.frozen_forms == FrozenForms::kRows;
    return std::vector{rank_on("a", (fewer ? rows : packed) * kGigabyte, 8 * kGigabyte)};
  });
  found.forms = settings.frozen_forms;
  return found;
}

TEST(MemoryCheck, FrozenWeightsStayInRowsWherePackedFormsDoNotFit) {
  const Found enough = fit("auto", 8, 4);
  EXPECT_EQ(enough.line, "");
  EXPECT_EQ(enough.forms, FrozenForms::kFewest);
  const Found fewer = fit("auto", 9, 4);
  EXPECT_NE(fewer.line.find("--frozen-weights auto: rows"), std::string::npos) << fewer.line;
  EXPECT_EQ(fewer.forms, FrozenForms::kRows);
  EXPECT_EQ(fit("rows", 9, 4).forms, FrozenForms::kRows);
  EXPECT_THROW(fit("packed", 9, 4), Error);
  EXPECT_THROW(fit("auto", 12, 9), Error);
  EXPECT_THROW(fit("", 9, 4), Error);  // without adapters nothing is frozen
}

}  // namespace
}  // namespace piton
