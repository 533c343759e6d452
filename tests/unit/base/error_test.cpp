#include "base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

namespace piton {
namespace {

const std::vector<std::string> kFlags = {"learning-rate", "lr", "micro-batch-size",
                                         "global-batch-size"};

TEST(Error, FormatsItsMessageAndKeepsItsFault) {
  const Error error(Fault::kData, "{}: got {}, wanted {}", "corpus.idx", 3, 4);
  EXPECT_STREQ(error.what(), "corpus.idx: got 3, wanted 4");
  EXPECT_EQ(error.fault(), Fault::kData);
}

TEST(Error, WithoutArgumentsIsTakenAsItStands) {
  EXPECT_STREQ(Error(Fault::kUsage, "a {brace} stays").what(), "a {brace} stays");
}

TEST(Fault, IsTheExitCodeThatScriptsRelyOn) {
  EXPECT_EQ(static_cast<int>(Fault::kUsage), 2);
  EXPECT_EQ(static_cast<int>(Fault::kData), 3);
  EXPECT_EQ(static_cast<int>(Fault::kMemory), 4);
  EXPECT_EQ(static_cast<int>(Fault::kDiverged), 5);
  EXPECT_EQ(static_cast<int>(Fault::kPeer), 6);
  EXPECT_EQ(static_cast<int>(Fault::kSaved), 75);
  EXPECT_EQ(name(Fault::kSaved), "saved");
}

TEST(NearestName, FindsSlipsOfTheFingers) {
  EXPECT_EQ(nearest_name("learning-rat", kFlags), "learning-rate");
  EXPECT_EQ(nearest_name("laerning-rate", kFlags), "learning-rate");
  EXPECT_EQ(nearest_name("global_batch_size", kFlags), "global-batch-size");
  EXPECT_EQ(nearest_name("rl", kFlags), "lr");
}

TEST(NearestName, IsEmptyWhenNothingIsNear) {
  EXPECT_EQ(nearest_name("tokenizer", kFlags), "");
  EXPECT_EQ(nearest_name("x", std::vector<std::string>{}), "");
}

TEST(NearestName, TakesAtMostAThirdOfTheLetters) {
  const std::vector<std::string> known = {"abcdef"};
  EXPECT_EQ(nearest_name("abcdxy", known), "abcdef");  // 2 of 6
  EXPECT_EQ(nearest_name("abcxyz", known), "");        // 3 of 6
}

TEST(SystemMessage, NamesAFullDisk) {
  EXPECT_EQ(system_message(ENOSPC), "No space left on device");
}

TEST(AssertDeathTest, SaysWhatIsFalseAndWhere) {
  const int rows = 3;
  EXPECT_DEATH(PITON_ASSERT(rows == 4, "{} rows", rows), "error_test.*rows == 4 is false: 3 rows");
  PITON_ASSERT(rows == 3);
}

}  // namespace
}  // namespace piton
