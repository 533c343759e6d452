#include "evaluate/evaluation_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/errors.h"
#include "support/scripted_model.h"

namespace piton {
namespace {

using test::ScriptedModel;
using testing::HasSubstr;

TaskData data_of(TaskKind kind, TaskSample sample) {
  TaskData data{.task = {.name = "t", .kind = kind}};
  data.samples.push_back(std::move(sample));
  return data;
}

// Context and continuation as text.
std::pair<std::string, std::string> texts_of(const ScriptedModel& model,
                                             const ContinuationRequest& request) {
  const std::span<const std::int32_t> ids(request.ids);
  return {model.tokenizer().decode(ids.first(request.given)),
          model.tokenizer().decode(ids.subspan(request.given))};
}

using Pair = std::pair<std::string, std::string>;

TEST(EvaluationRequests, MoveWhiteSpaceOfTheContextToTheContinuation) {
  const ScriptedModel model;
  const auto requests = make_requests(
      model,
      data_of(TaskKind::kMultipleChoice,
              {.contexts = {"a b \n"}, .continuations = {" c", "d"}, .choices = {"c", "d"}}),
      {});
  ASSERT_EQ(requests.size(), 2U);
  EXPECT_EQ(texts_of(model, requests[0].text), Pair("a b", " \n c"));
  EXPECT_EQ(texts_of(model, requests[1].text), Pair("a b", " \nd"));
}

TEST(EvaluationRequests, FollowTheEndOfATextWithoutAContext) {
  const ScriptedModel model;
  const auto requests = make_requests(
      model, data_of(TaskKind::kLastWord, {.contexts = {""}, .continuations = {"ab"}}), {});
  EXPECT_EQ(requests[0].text.ids, std::vector<std::int32_t>({256, 'a', 'b'}));
  EXPECT_EQ(requests[0].text.given, 1U);
}

TEST(EvaluationRequests, AreCutOnTheLeft) {
  ScriptedModel model;
  model.longest = 5;
  const auto requests = make_requests(
      model,
      data_of(TaskKind::kMultipleChoice, {.contexts = {"0123456"}, .continuations = {"ab", "abc"}}),
      {});
  EXPECT_EQ(texts_of(model, requests[0].text), Pair("3456", "ab"));  // five are read, six known
  EXPECT_EQ(texts_of(model, requests[1].text), Pair("456", "abc"));
  EXPECT_TRUE(requests[0].cut);
  const auto whole = make_requests(
      model, data_of(TaskKind::kMultipleChoice, {.contexts = {"0123"}, .continuations = {"ab"}}),
      {});
  EXPECT_FALSE(whole[0].cut);
  EXPECT_THAT(message_of(Fault::kData,
                         [&] {
                           make_requests(model,
                                         data_of(TaskKind::kLastWord,
                                                 {.contexts = {"0"}, .continuations = {"abcdef"}}),
                                         {});
                         }),
              HasSubstr("t: sample 0: the answer has 6 tokens, and the model reads 5; take a "
                        "model that reads more, or leave the task out"));
}

TEST(EvaluationRequests, OfPromptsLeaveRoomForTheAnswer) {
  ScriptedModel model;
  model.longest = 8;
  const TaskData data = data_of(TaskKind::kGeneration, {.contexts = {"0123456789"}});
  const auto requests = make_requests(model, data, {.max_new_tokens = 3});
  EXPECT_EQ(texts_of(model, requests[0].text), Pair("56789", ""));
  EXPECT_TRUE(requests[0].cut);
  EXPECT_THAT(
      message_of(Fault::kUsage, [&] { make_requests(model, data, {.max_new_tokens = 8}); }),
      HasSubstr(
          ": an answer has up to 8 tokens, and the model reads 8; give fewer by --max-new-tokens"));
}

TEST(EvaluationRequests, ScoreTheLastTokenOfAChoice) {
  const ScriptedModel model;
  const auto requests = make_requests(
      model, data_of(TaskKind::kNextToken, {.contexts = {"Q:"}, .continuations = {"Yes", "No"}}),
      {});
  EXPECT_EQ(texts_of(model, requests[0].text), Pair("Q:", "s"));
  EXPECT_EQ(texts_of(model, requests[1].text), Pair("Q:", "o"));
}

// get_rolling_token_windows() of lm-evaluation-harness, by hand.
TEST(EvaluationRequests, OfATextPredictEveryTokenOnce) {
  ScriptedModel model;
  model.longest = 4;
  const TaskData data = data_of(TaskKind::kPerplexity, {.contexts = {"abcdefghij"}});
  const auto windows = [&](std::int64_t overlapping) {
    std::vector<Pair> texts;
    for (const auto& one : make_requests(model, data, {.overlapping_eval = overlapping}))
      texts.push_back(texts_of(model, one.text));
    return texts;
  };
  const std::string end = model.tokenizer().decode(std::vector<std::int32_t>{256});
  EXPECT_EQ(windows(0), std::vector<Pair>({{end, "abcd"}, {"d", "efgh"}, {"h", "ij"}}));
  EXPECT_EQ(windows(2),
            std::vector<Pair>({{end, "abcd"}, {"bcd", "ef"}, {"def", "gh"}, {"fgh", "ij"}}));
  EXPECT_EQ(windows(3), std::vector<Pair>({{end, "abcd"}, {"cd", "efg"}, {"fg", "hij"}}));
  EXPECT_THAT(message_of(Fault::kUsage, [&] { windows(5); }),
              HasSubstr("--overlapping-eval: got 5, wanted 1 to 4"));
}

}  // namespace
}  // namespace piton
