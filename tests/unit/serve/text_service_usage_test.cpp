// Tokens of prompts that were in the cache, as each kind of answer counts them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_service.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

class Usage : public test::Service {
 protected:
  void SetUp() override {
    model_.engine_of_it.reused = 3;
    begin();
  }
  static Json chat() {
    return {{"messages", Json::array({{{"role", "user"}, {"content", "question"}}})},
            {"max_tokens", 5}};
  }
};

TEST_F(Usage, OfCompletionsHasEachPromptOnce) {
  const Json usage =
      post("/v1/completions", {{"prompt", {"abcd", "abce"}}, {"n", 2}, {"max_tokens", 2}})["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 8);
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 6);
  EXPECT_EQ(usage["total_tokens"], 8 + 2 * 2 * 2);
}

TEST_F(Usage, OfChatsIsTheSameInAStream) {
  const Json usage = post("/v1/chat/completions", chat())["usage"];
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 3);
  Json body = chat();
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  EXPECT_EQ(stream("/v1/chat/completions", body).back()["usage"], usage);
}

TEST_F(Usage, OfResponsesIsADetailOfTheInput) {
  const Json usage = post("/v1/responses", {{"input", "question"}})["usage"];
  EXPECT_GT(usage["input_tokens"], 8);
  EXPECT_EQ(usage["input_tokens_details"]["cached_tokens"], 3);
}

TEST_F(Usage, OfMessagesHasTheRestAsInput) {
  const Json usage = post("/v1/messages", chat())["usage"];
  const Json count = post("/v1/messages/count_tokens", {{"messages", chat()["messages"]}});
  EXPECT_EQ(usage["cache_read_input_tokens"], 3);
  EXPECT_EQ(usage["input_tokens"], count["input_tokens"].get<int>() - 3);
}

}  // namespace
}  // namespace piton
