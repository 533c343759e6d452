// /v1/messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_service.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class Messages : public test::Service {
 protected:
  void write(const std::string& text) {
    model_.engine_of_it.write = [text](const std::string&, std::uint64_t) { return text; };
  }
  static Json question(const Json& more = Json::object()) {
    Json body = {{"max_tokens", 150}, {"messages", {{{"role", "user"}, {"content", "q"}}}}};
    body.update(more);
    return body;
  }
  Json answer(const Json& more = Json::object()) { return post("/v1/messages", question(more)); }
  std::string refused(const Json& body) {
    const Json json = post("/v1/messages", body, 400);
    EXPECT_EQ(json["type"], "error");
    EXPECT_EQ(json["error"]["type"], "invalid_request_error");
    return json["error"]["message"].get<std::string>();
  }
  static Json tool(const char* name) {
    return {{"name", name}, {"input_schema", {{"type", "object"}}}};
  }
};

TEST_F(Messages, AnswerUnderASystemText) {
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) { return prompt; };
  begin();
  const Json system = {{{"type", "text"}, {"text", "s"}, {"cache_control", {{"type", "x"}}}}};
  const Json json = answer({{"system", system}});
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["role"], "assistant");
  EXPECT_EQ(json["content"][0]["text"], "system:s;user:q;assistant:");
  EXPECT_EQ(json["stop_reason"], "end_turn");
  EXPECT_TRUE(json["stop_sequence"].is_null());
  EXPECT_EQ(json["usage"]["input_tokens"], 26);
  EXPECT_EQ(json["usage"]["output_tokens"], 27);
  EXPECT_EQ(answer({{"max_tokens", 4}})["stop_reason"], "max_tokens");
  const Json stopped = answer({{"stop_sequences", {"zz", "q;a"}}});
  EXPECT_EQ(stopped["content"][0]["text"], "user:");
  EXPECT_EQ(stopped["stop_reason"], "stop_sequence");
  EXPECT_EQ(stopped["stop_sequence"], "q;a");
  Json count = question({{"system", "s"}});
  count.erase("max_tokens");
  EXPECT_EQ(post("/v1/messages/count_tokens", count), Json({{"input_tokens", 26}}));
}

TEST_F(Messages, TakeBlocksOfAnswersBack) {
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) { return prompt; };
  begin();
  const Json called = {{{"type", "thinking"}, {"thinking", "t"}, {"signature", ""}},
                       {{"type", "text"}, {"text", "a"}},
                       {{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", {{"x", 1}}}}};
  const Json gave = {{{"type", "tool_result"},
                      {"tool_use_id", "1"},
                      {"content", {{{"type", "text"}, {"text", "r"}}}}},
                     {{"type", "text"}, {"text", "and"}}};
  const Json messages = {{{"role", "user"}, {"content", "q"}},
                         {{"role", "assistant"}, {"content", called}},
                         {{"role", "user"}, {"content", gave}}};
  EXPECT_EQ(answer({{"messages", messages}, {"tools", {tool("f")}}})["content"][0]["text"],
            "T:f;user:q;assistant:af={\"x\": 1};tool:r;user:and;assistant:");
}

TEST_F(Messages, ContinueAnAnswerThatIsBegun) {
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) { return prompt; };
  begin();
  const Json messages = {{{"role", "user"}, {"content", "q"}},
                         {{"role", "assistant"}, {"content", "It is"}}};
  EXPECT_EQ(answer({{"messages", messages}})["content"][0]["text"], "user:q;assistant:It is");
  const auto chat = [&](const Json& more, int status = 200) {
    Json body = {{"messages", messages}};
    body.update(more);
    return post("/v1/chat/completions", body, status);
  };
  EXPECT_EQ(chat({{"continue_final_message", true},
                  {"add_generation_prompt", false}})["choices"][0]["message"]["content"],
            "user:q;assistant:It is");
  EXPECT_EQ(chat(Json::object())["choices"][0]["message"]["content"],
            "user:q;assistant:It is;assistant:");
  const auto field = [&](const Json& more) { return chat(more, 400)["error"]["param"]; };
  EXPECT_EQ(field({{"continue_final_message", true}, {"add_generation_prompt", true}}),
            "add_generation_prompt");
  EXPECT_EQ(field({{"add_generation_prompt", false}}), "add_generation_prompt");
  EXPECT_EQ(field({{"continue_final_message", true}, {"messages", Json::array({messages[0]})}}),
            "continue_final_message");
}

TEST_F(Messages, CallTools) {
  write(
      "So:\n<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>"
      "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>");
  begin();
  const Json tools = {tool("f"), tool("g")};
  const Json json = answer({{"tools", tools}});
  ASSERT_EQ(json["content"].size(), 3U);
  EXPECT_EQ(json["content"][1]["type"], "tool_use");
  EXPECT_EQ(json["content"][1]["input"], Json({{"x", 1}}));
  EXPECT_EQ(json["content"][2]["name"], "g");
  EXPECT_EQ(json["stop_reason"], "tool_use");
  const auto choose = [&](const Json& choice) {
    return answer({{"tools", tools}, {"tool_choice", choice}});
  };
  EXPECT_EQ(choose({{"type", "auto"}, {"disable_parallel_tool_use", true}})["content"].size(), 2U);
  EXPECT_EQ(choose({{"type", "none"}})["stop_reason"], "end_turn");
  EXPECT_EQ(choose({{"type", "any"}})["stop_reason"], "tool_use");
  const Json named = choose({{"type", "tool"}, {"name", "g"}});
  ASSERT_EQ(named["content"].size(), 1U);
  EXPECT_EQ(named["content"][0]["name"], "g");
  const Json format = {{"type", "json_schema"}, {"schema", {{"const", 7}}}};
  EXPECT_EQ(answer({{"output_config", {{"format", format}}}})["content"][0]["text"], "7");
}

TEST_F(Messages, StreamTheSameAnswer) {
  model_.template_of_it = ChatTemplate(
      "q{% for t in tools or [] %}{{ t.function.name }}{% endfor %}<think>", Json::object(), "t");
  write("why</think>So:\n<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>");
  begin();
  const Json whole = answer({{"tools", {tool("f")}}});
  ASSERT_EQ(whole["content"].size(), 3U);
  EXPECT_EQ(whole["content"][0]["thinking"], "why");
  EXPECT_EQ(whole["usage"]["output_tokens_details"]["thinking_tokens"], 11);
  const std::vector<Json> events =
      typed_stream("/v1/messages", question({{"tools", {tool("f")}}, {"stream", true}}));
  EXPECT_EQ(events.front()["type"], "message_start");
  EXPECT_EQ(events.front()["message"]["usage"]["input_tokens"], whole["usage"]["input_tokens"]);
  EXPECT_EQ(events.back()["type"], "message_stop");
  // As the client joins them.
  Json content = Json::array();
  std::string arguments;
  for (const Json& event : events) {
    const std::string type = event["type"];
    if (type == "content_block_start") {
      EXPECT_EQ(event["index"], content.size());
      content.push_back(event["content_block"]);
    }
    if (type == "message_delta") {
      EXPECT_EQ(event["usage"], whole["usage"]);
      EXPECT_EQ(event["delta"]["stop_reason"], "tool_use");
    }
    if (type != "content_block_delta") continue;
    const Json& delta = event["delta"];
    for (const char* name : {"text", "thinking"}) {
      if (delta.contains(name))
        content.back()[name] = content.back()[name].get<std::string>() + std::string(delta[name]);
    }
    if (delta["type"] == "input_json_delta") arguments += delta["partial_json"];
  }
  content.back()["input"] = read_json<Json>(arguments);
  content.back()["id"] = whole["content"][2]["id"];
  EXPECT_EQ(content, whole["content"]);
  model_.engine_of_it.fails_after = 0;
  const Json last = typed_stream("/v1/messages", question({{"stream", true}})).back();
  EXPECT_EQ(last["type"], "error");
  EXPECT_EQ(last["error"]["type"], "api_error");
}

TEST_F(Messages, SwitchReasoningWhereTheTemplateCan) {
  write("yes");
  const auto use = [&](const char* source) {
    model_.template_of_it = ChatTemplate(source, Json::object(), "t");
  };
  const auto tokens = [&](const char* type) {
    return answer({{"thinking", {{"type", type}}}})["usage"]["input_tokens"].get<int>();
  };
  use("q{% if enable_thinking %}<think>{% endif %}");
  begin();
  EXPECT_EQ(tokens("enabled"), 8);
  EXPECT_EQ(tokens("adaptive"), 8);
  EXPECT_EQ(tokens("disabled"), 1);
  use("q<think>");
  EXPECT_EQ(tokens("enabled"), 8);
  const auto refused_for = [&](const char* type) {
    return refused(question({{"thinking", {{"type", type}}}}));
  };
  EXPECT_THAT(refused_for("disabled"), HasSubstr("no variable enable_thinking"));
  use("q");
  EXPECT_EQ(tokens("disabled"), 1);
  EXPECT_THAT(refused_for("enabled"), HasSubstr("has no reasoning"));
}

TEST_F(Messages, TakeTheKeyFromTheirHeader) {
  ServiceOptions options;
  options.api_key = "k";
  begin(options);
  const auto status = [&](const char* key) {
    return service_
        ->answer({.method = "POST",
                  .path = "/v1/messages",
                  .authorization = {},
                  .api_key = key,
                  .body = question().dump()},
                 client_)
        .status;
  };
  EXPECT_EQ(status("k"), 200);
  EXPECT_EQ(status("x"), 401);
  EXPECT_EQ(post("/v1/messages", question(), 401)["error"]["type"], "authentication_error");
}

TEST_F(Messages, AreRefusedInTheFormOfTheirService) {
  begin();
  Json without = question();
  without.erase("max_tokens");
  EXPECT_EQ(refused(without), "max_tokens: got nothing, wanted a whole number from 1 to 200");
  const auto with = [&](const char* field, Json value) {
    return refused(question({{field, std::move(value)}}));
  };
  EXPECT_THAT(with("max_completion_tokens", 3), HasSubstr("unknown field"));
  EXPECT_THAT(with("messages", Json::array()), HasSubstr("at least one message"));
  EXPECT_THAT(with("messages", {{{"role", "tool"}, {"content", "x"}}}),
              HasSubstr("messages[0].role"));
  EXPECT_THAT(with("messages", {{{"role", "user"}, {"content", {{{"type", "image"}}}}}}),
              HasSubstr("messages[0].content[0].type: got \"image\", wanted text or tool_result"));
  const Json call = {{"type", "tool_use"}, {"id", "1"}, {"name", "f"}, {"input", Json::object()}};
  EXPECT_THAT(with("messages", {{{"role", "assistant"}, {"content", Json::array({call})}}}),
              HasSubstr("a tool_result after the last tool_use"));
  EXPECT_THAT(with("tools", {{{"type", "bash_20250124"}, {"name", "bash"}}}),
              HasSubstr("tools[0].type"));
  EXPECT_THAT(with("tools", {{{"name", "f"}}}), HasSubstr("tools[0].input_schema"));
  EXPECT_THAT(with("tool_choice", {{"type", "any"}}), HasSubstr("there are no tools"));
  EXPECT_THAT(with("thinking", {{"type", "on"}}), HasSubstr("thinking.type"));
  EXPECT_THAT(with("output_config", {{"effort", "low"}}), HasSubstr("output_config.effort"));
  EXPECT_EQ(post("/v1/messages", question({{"model", "claude"}}), 404)["error"]["type"],
            "not_found_error");
}

}  // namespace
}  // namespace piton
