// What the flags of split linears mean, and what is refused.
#include "parallel/linear_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

struct Parsed {
  LinearOptions options;
  OptionSet set;

  explicit Parsed(const std::vector<std::string>& words) {
    set.add("parallel", options);
    set.parse(words);
  }
};

LinearStrategy strategy(const std::vector<std::string>& words) {
  return Parsed(words).options.strategy();
}

std::string refusal(const std::vector<std::string>& words, std::vector<std::int64_t> tokens = {64},
                    int tensor = 2) {
  const Parsed parsed(words);
  return message_of(Fault::kUsage, [&] { parsed.options.strategy(tokens, tensor); });
}

TEST(LinearOptions, AreWholeLinearsThatGatherAgain) {
  EXPECT_EQ(strategy({}), LinearStrategy{});
  EXPECT_FALSE(strategy({}).fuses());
}

TEST(LinearOptions, HaveTheSwitchesOfMindSpeed) {
  EXPECT_EQ(strategy({"--coc-parallel-num", "8"}).slices, 8);
  EXPECT_EQ(strategy({"--coc-parallel-num", "8", "--coc-fused-kernel"}).slices, kFused);
  EXPECT_EQ(strategy({"--coc-parallel-num", "8", "--coc-mode", "1"}).slices, 1);
  EXPECT_EQ(strategy({"--coc-fused-kernel", "--coc-mode", "0"}).slices, 1);
  EXPECT_EQ(strategy({"--coc-parallel-num", "4", "--coc-mode", "2"}).slices, 4);
  EXPECT_TRUE(strategy({"--no-recompute-all-gather"}).keeps_gathered);
  EXPECT_TRUE(strategy({"--recompute-all-gather=false"}).keeps_gathered);
  EXPECT_TRUE(
      strategy({"--fused-linears", "--enable-coc-in-column-backward"}).fused_column_backward);
}

TEST(LinearOptions, HaveSlicesOfHeads) {
  const auto slices = [](const std::vector<std::string>& words) {
    return Parsed(words).options.slices_of_heads();
  };
  EXPECT_EQ(slices({}), 0);
  EXPECT_EQ(slices({"--num-slices", "1"}), 1);
  EXPECT_EQ(slices({"--num-slices", "8"}), 8);
  EXPECT_EQ(slices({"--num-slices", "8", "--coc-mode", "1"}), 1);
  EXPECT_EQ(slices({"--num-slices", "8", "--fused-linears"}), 0);
}

TEST(LinearOptions, HaveSlicesOfSomeShapes) {
  const LinearStrategy some =
      strategy({"--num-slices", "2", "--customized-coc",
                "{\"[16384, 5120, 1920]\": 8, \"[16384,1920,5120]\": 1, \"[64, 4, 4]\": -1}"});
  EXPECT_EQ(some.slices_of({16384, 5120, 1920}), 8);
  EXPECT_EQ(some.slices_of({16384, 1920, 5120}), 1);
  EXPECT_EQ(some.slices_of({64, 4, 4}), kFused);
  EXPECT_EQ(some.slices_of({64, 4, 8}), 2);
  EXPECT_TRUE(some.fuses());
  EXPECT_EQ(strategy({"--customized-coc", "{'[8, 4, 2]': 4}"}).slices_of({8, 4, 2}), 4);
  EXPECT_EQ(strategy({"--customized-coc", "{'[8, 4, 2]': 4}", "--coc-mode", "1"}),
            LinearStrategy{});
}

TEST(LinearOptions, RefuseNumbersThatMindSpeedRefuses) {
  EXPECT_EQ(refusal({"--num-slices", "3"}), "parallel: --num-slices: got 3, wanted 1, 2, 4 or 8");
  EXPECT_THAT(refusal({"--num-slices", "-1"}), HasSubstr("got -1, wanted 1, 2, 4 or 8"));
  EXPECT_EQ(refusal({"--coc-mode", "3"}), "parallel: --coc-mode: got 3, wanted -1, 0, 1 or 2");
  EXPECT_THAT(refusal({"--enable-coc-in-column-backward"}), HasSubstr("needs --fused-linears"));
}

TEST(LinearOptions, RefuseDictionariesThatAreNone) {
  const auto of = [](const std::string& text) { return refusal({"--customized-coc", text}); };
  EXPECT_EQ(of("[1]"),
            "parallel: --customized-coc: the dictionary: got [1], wanted {\"[m, k, n]\": slices, "
            "...}");
  EXPECT_THAT(of("{"), HasSubstr("the dictionary: got {"));
  for (const char* key : {"[4, 4]", "4, 4, 4", "[4, 4, 0]", "[4, 4, 4.5]", "[4, 4, -4]", "x"}) {
    EXPECT_THAT(of(std::string("{\"") + key + "\": 2}"), HasSubstr("a shape: got")) << key;
  }
  for (const char* value : {"3", "0", "-2", "\"8\"", "2.0", "true", "16"}) {
    EXPECT_THAT(of(std::string("{\"[16, 4, 4]\": ") + value + "}"),
                HasSubstr("slices of [16, 4, 4]: got"))
        << value;
  }
  EXPECT_THAT(of("{\"[4, 4, 4]\": 2, \"[4,4,4]\": 4}"), HasSubstr("twice"));
  EXPECT_THAT(of("{\"[12, 4, 4]\": 8}"), HasSubstr("12 rows of [12, 4, 4] cannot be cut into 8"));
}

TEST(LinearOptions, RefuseTokensThatCannotBeCut) {
  EXPECT_EQ(
      refusal({"--num-slices", "8"}, {64, 60}),
      "parallel: --num-slices: 60 tokens of a micro-batch cannot be cut into 8 slices; change "
      "--num-slices, --seq-length or --micro-batch-size");
  EXPECT_THAT(refusal({"--num-slices", "8", "--sequence-parallel"}, {72}),
              HasSubstr("36 tokens of a micro-batch on each tensor rank cannot be cut"));
  EXPECT_THAT(refusal({"--sequence-parallel"}, {63}),
              HasSubstr("--sequence-parallel: 63 tokens of a micro-batch cannot be split over 2"));
  EXPECT_THAT(refusal({"--sequence-parallel", "--customized-coc", "{\"[8, 4, 2]\": 8}"}, {8}),
              HasSubstr("--customized-coc: 4 tokens"));
  const LinearOptions eight{.slices = 8};
  EXPECT_EQ(eight.strategy({60}, 1).slices, 8);  // nothing is cut on one tensor rank
  EXPECT_EQ(eight.strategy({4}, 2).slices, 8);   // fewer rows than slices are whole
  const LinearOptions divided{.sequence_parallel = true};
  EXPECT_TRUE(divided.strategy({64}, 2).sequence_parallel);
  EXPECT_FALSE(divided.strategy({63}, 1).sequence_parallel);
  EXPECT_EQ(eight.strategy({64, 128}, 2).shared_rows, 128);
}

}  // namespace
}  // namespace piton
