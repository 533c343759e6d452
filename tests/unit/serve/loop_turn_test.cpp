#include "serve/loop_turn.h"

#include <gtest/gtest.h>

namespace piton {
namespace {

TEST(LoopTurn, IsReadAsItWasWritten) {
  EXPECT_EQ(turn_bytes({}), "");
  EXPECT_TRUE(read_turn("").empty());
  LoopTurn turn;
  turn.cancelled = {3, 5};
  turn.last = true;
  turn.embedded = {{.ids = {1, 2}, .adapter = {}, .types = {0, 1}},
                   {.ids = {3}, .adapter = 0, .types = {}}};
  TextToWrite text;
  text.request.prompt = {7, 8};
  text.request.ends = {9};
  text.request.draw = 11;
  text.request.adapter = 2;
  text.request.scored_from = 1;
  text.request.alternatives = {4, 5};
  text.request.sampling.temperature = 0.1;
  text.request.sampling.seed = ~std::uint64_t{0};
  text.request.sampling.top_p = 0.30000000000000004;
  text.request.sampling.greedy = true;
  text.request.sampling.log_probabilities = 3;
  text.request.sampling.no_repeat_ngram_size = 4;
  text.request.sampling.typical_p = 0.7;
  text.request.sampling.dry.multiplier = 0.8;
  text.request.sampling.dry_breakers = {"\n", "a b"};
  text.request.sampling.bias_texts = {"7=-0.1", "2=5"};
  text.constraint = {ConstraintKind::kRegex, "a\"b"};
  turn.submitted.push_back(text);
  turn.submitted.emplace_back();
  const LoopTurn read = read_turn(turn_bytes(turn));
  EXPECT_EQ(read.cancelled, turn.cancelled);
  EXPECT_TRUE(read.last);
  EXPECT_EQ(read.embedded, turn.embedded);
  const DecodingRequest& request = read.submitted[0].request;
  EXPECT_EQ(request.prompt, text.request.prompt);
  EXPECT_EQ(request.ends, text.request.ends);
  EXPECT_EQ(request.draw, 11U);
  EXPECT_EQ(request.adapter, 2);
  EXPECT_EQ(request.scored_from, 1);
  EXPECT_EQ(request.alternatives, text.request.alternatives);
  EXPECT_EQ(request.sampling.temperature, 0.1);
  EXPECT_EQ(request.sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(request.sampling.top_p, 0.30000000000000004);
  EXPECT_TRUE(request.sampling.greedy);
  EXPECT_EQ(request.sampling.log_probabilities, 3);
  EXPECT_EQ(request.sampling.no_repeat_ngram_size, 4);
  EXPECT_EQ(request.sampling.typical_p, 0.7);
  EXPECT_EQ(request.sampling.dry.multiplier, 0.8);
  EXPECT_EQ(request.sampling.dry_breakers, text.request.sampling.dry_breakers);
  EXPECT_EQ(request.sampling.logit_bias, (std::map<std::int32_t, double>{{2, 5}, {7, -0.1}}));
  EXPECT_EQ(read.submitted[0].constraint, text.constraint);
  EXPECT_NE(read.submitted[0].grammar, nullptr);
  EXPECT_EQ(read.submitted[1].grammar, nullptr);
  EXPECT_EQ(read.submitted[1].request.adapter, std::nullopt);
  EXPECT_EQ(read.submitted[1].request.sampling.log_probabilities, std::nullopt);
}

}  // namespace
}  // namespace piton
