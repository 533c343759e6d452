#include "train/run/batch_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

TEST(BatchSizes, AreOneNumberWithoutARampUp) {
  const BatchSizes sizes(8);
  EXPECT_EQ(sizes.at(0), 8);
  EXPECT_EQ(sizes.at(1000), 8);
  EXPECT_EQ(sizes.updates(27), 3);
  EXPECT_EQ(sizes.updates(7), 0);
  EXPECT_FALSE(sizes.grows());
  EXPECT_EQ(sizes.all(), (std::vector<std::int64_t>{8}));
}

// 2, 4, 6 and 8 samples: an increment every 24 / 3 = 8 samples.
TEST(BatchSizes, GrowByAnIncrementWheneverTheNextShareOfTheSamplesIsConsumed) {
  const BatchSizes sizes(8, {2, 2, 24}, 2);
  EXPECT_EQ(sizes.at(0), 2);
  EXPECT_EQ(sizes.at(7), 2);
  EXPECT_EQ(sizes.at(8), 4);
  EXPECT_EQ(sizes.at(16), 6);
  EXPECT_EQ(sizes.at(24), 8);
  EXPECT_EQ(sizes.at(25), 8);
  // 4 x 2, 2 x 4, 2 x 6 make 28; then whole ones.
  EXPECT_EQ(sizes.updates(28), 8);
  EXPECT_EQ(sizes.updates(51), 10);
  EXPECT_EQ(sizes.updates(52), 11);
  EXPECT_EQ(sizes.all(), (std::vector<std::int64_t>{2, 4, 6, 8}));
}

TEST(BatchSizes, AreThoseOfMegatronCore) {
  std::ifstream file(std::filesystem::path(PITON_SOURCE_DIR) / "tests/golden/megatron_batches.txt");
  std::string line;
  int cases = 0;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    SCOPED_TRACE(line);
    std::istringstream words(line);
    std::int64_t whole = 0, share = 0, start = 0, increment = 0, ramp = 0, samples = 0, updates = 0;
    words >> whole >> share >> start >> increment >> ramp >> samples >> updates;
    const BatchSizes sizes(whole, {start, increment, ramp}, share);
    EXPECT_EQ(sizes.updates(samples), updates);
    std::int64_t batch = 0, consumed = 0;
    int steps = 0;
    for (; words >> batch >> consumed; ++steps) EXPECT_EQ(sizes.at(consumed), batch) << consumed;
    EXPECT_EQ(steps, 24);
    ++cases;
  }
  EXPECT_EQ(cases, 9);
}

TEST(BatchSizes, RefuseWhatCannotBe) {
  const auto refused = [](const std::vector<std::int64_t>& ramp, std::int64_t share = 2) {
    return message_of(Fault::kUsage, [&] { BatchSizes(8, ramp, share); });
  };
  EXPECT_THAT(refused({2, 2}), HasSubstr("--rampup-batch-size: got 2 numbers, wanted 3"));
  EXPECT_THAT(refused({0, 2, 24}), HasSubstr("the first batch: got 0, wanted 1 to 7"));
  EXPECT_THAT(refused({8, 2, 24}), HasSubstr("the first batch: got 8, wanted 1 to 7"));
  EXPECT_THAT(refused({2, 0, 24}), HasSubstr("the increment: got 0, wanted 1 to 6"));
  EXPECT_THAT(refused({2, 2, 0}), HasSubstr("the samples of the ramp-up: got 0, wanted 1 or more"));
  EXPECT_THAT(refused({2, 4, 24}), HasSubstr("lead from 2 past --global-batch-size 8"));
  EXPECT_THAT(refused({2, 3, 24}), HasSubstr("got batches of 2 and 3 more, wanted multiples of 2"));
  EXPECT_THAT(refused({4, 2, 24}, 4), HasSubstr("wanted multiples of 4"));
}

}  // namespace
}  // namespace piton
