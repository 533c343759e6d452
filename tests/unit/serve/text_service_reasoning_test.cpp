// Reasoning before an answer, and variables of the chat template.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_service.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class Reasoning : public test::Service {
 protected:
  void write(const std::string& text) {
    model_.engine_of_it.write = [text](const std::string&, std::uint64_t) { return text; };
    model_.template_of_it = ChatTemplate(
        "{{ messages[0].content }}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{% if "
        "enable_thinking is not defined or enable_thinking %}<think>"
        "\n{% endif %}{{ reasoning_effort }}",
        Json::object(), "thinks.jinja");
  }
  static Json question() {
    return {{"messages", Json::array({{{"role", "user"}, {"content", "q"}}})}};
  }
  static Json with(const char* field, Json value) {
    Json body = question();
    body[field] = std::move(value);
    return body;
  }
  Json message(const Json& body) {
    return post("/v1/chat/completions", body)["choices"][0]["message"];
  }
};

TEST_F(Reasoning, IsApartFromTheAnswer) {
  write("why\n</think>\n\nyes");
  begin();
  const Json answer = post("/v1/chat/completions", question());
  EXPECT_EQ(answer["choices"][0]["message"]["reasoning_content"], "why");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "yes");
  // Its bytes, with those of </think>.
  EXPECT_EQ(answer["usage"]["completion_tokens_details"]["reasoning_tokens"], 12);
  Json reasoning = "";
  Json content = "";
  for (const Json& event : stream("/v1/chat/completions", with("stream", true))) {
    const Json& delta = event["choices"][0]["delta"];
    reasoning = reasoning.get<std::string>() + delta.value("reasoning_content", "");
    content = content.get<std::string>() + delta.value("content", "");
  }
  EXPECT_EQ(reasoning, "why");
  EXPECT_EQ(content, "yes");
}

TEST_F(Reasoning, IsNotLookedForInOtherTexts) {
  write("why</think>yes");
  begin();
  EXPECT_EQ(post("/v1/completions", {{"prompt", "q<think>"}})["choices"][0]["text"],
            "why</think>yes");
  // The prompt has closed it, or the answer is held to a form from its first token.
  for (const Json& body : {with("chat_template_kwargs", {{"enable_thinking", false}}),
                           with("guided_choice", Json::array({"why</think>yes"}))}) {
    const Json answer = message(body);
    EXPECT_EQ(answer["content"], "why</think>yes");
    EXPECT_FALSE(answer.contains("reasoning_content"));
  }
}

TEST_F(Reasoning, IsAPartOfTheContentWhereTheServerSaysSo) {
  write("why</think>yes");
  begin({.limits = {.finds_reasoning = false}});
  const Json answer = post("/v1/chat/completions", question());
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "why</think>yes");
  EXPECT_FALSE(answer["usage"].contains("completion_tokens_details"));
}

TEST_F(Reasoning, MayComeBeforeACall) {
  write("{</think>{\"name\": \"f\", \"arguments\": {}}");
  begin();
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  const Json answer = message(with("tools", Json::array({tool})));
  EXPECT_EQ(answer["reasoning_content"], "{");
  EXPECT_TRUE(answer["content"].is_null());
  EXPECT_EQ(answer["tool_calls"][0]["function"]["name"], "f");
}

TEST_F(Reasoning, HasAnEffortWhereTheTemplateReadsIt) {
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) { return prompt; };
  begin();
  EXPECT_THAT(post("/v1/chat/completions", with("reasoning_effort", "low"), 400).dump(),
              HasSubstr("reasoning_effort\\\": the chat template does not read it"));
  model_.template_of_it = ChatTemplate("{{ reasoning_effort }}!", Json::object(), "effort.jinja");
  EXPECT_EQ(message(with("reasoning_effort", "low"))["content"], "low!");
}

TEST_F(Reasoning, VariablesThatChangeNothingAreRefused) {
  begin();
  const auto refused = [&](Json variables) {
    return post("/v1/chat/completions", with("chat_template_kwargs", std::move(variables)), 400)
        .dump();
  };
  EXPECT_THAT(refused({{"enable_thinking", false}}),
              HasSubstr("chat_template_kwargs.enable_thinking"));
  EXPECT_THAT(refused({{"messages", 1}}), HasSubstr("given separately"));
  EXPECT_THAT(refused("x"), HasSubstr("wanted an object"));
  EXPECT_THAT(refused({1}), HasSubstr("wanted an object"));
}

}  // namespace
}  // namespace piton
