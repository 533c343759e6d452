// /v1/responses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scripted_service.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

class Responses : public test::Service {
 protected:
  void write(const std::string& text) {
    model_.engine_of_it.write = [text](const std::string&, std::uint64_t) { return text; };
  }
  void reasons() {
    model_.template_of_it = ChatTemplate(
        "{% for m in messages %}{{ m.role }}:{{ m.reasoning_content }}|{{ m.content }};{% endfor %}"
        "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}{{ reasoning_effort }}<think>",
        Json::object(), "thinks.jinja");
  }
  Json answer(const Json& body) { return post("/v1/responses", body); }
  std::string refused(const Json& body) {
    const Json error = post("/v1/responses", body, 400)["error"];
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(error["param"].get<std::string>()));
    return error["message"].get<std::string>();
  }
  static Json tool(const char* name) {
    return {{"type", "function"}, {"name", name}, {"parameters", {{"type", "object"}}}};
  }
};

TEST_F(Responses, AnswerATextUnderInstructions) {
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) { return prompt; };
  begin();
  const Json json = answer({{"input", "q"}, {"instructions", "s"}, {"metadata", {{"k", "v"}}}});
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["metadata"], Json({{"k", "v"}}));
  EXPECT_EQ(json["instructions"], "s");
  EXPECT_EQ(json["store"], false);
  ASSERT_EQ(json["output"].size(), 1U);
  const Json& message = json["output"][0];
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["content"][0]["type"], "output_text");
  EXPECT_EQ(message["content"][0]["text"], "system:s;user:q;assistant:");
  EXPECT_EQ(json["usage"]["input_tokens"], 26);
  EXPECT_EQ(json["usage"]["output_tokens"], 27);
  const Json cut = answer({{"input", "q"}, {"max_output_tokens", 3}});
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(cut["output"][0]["status"], "incomplete");
}

TEST_F(Responses, TakeTheItemsOfAnswersBack) {
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) { return prompt; };
  begin();
  const auto prompt = [&](const Json& input, const Json& tools) {
    return answer({{"input", input}, {"tools", tools}})["output"][0]["content"][0]["text"]
        .get<std::string>();
  };
  const Json said = {{"type", "message"},
                     {"id", "msg_1"},
                     {"role", "assistant"},
                     {"status", "completed"},
                     {"content", {{{"type", "output_text"}, {"text", "a"}, {"annotations", {}}}}}};
  const auto called = [](const char* id) {
    return Json{{"type", "function_call"},   {"id", "fc"},           {"call_id", id}, {"name", "f"},
                {"arguments", "{\"x\": 1}"}, {"status", "completed"}};
  };
  const Json asked = {{"role", "user"}, {"content", {{{"type", "input_text"}, {"text", "q"}}}}};
  const auto gave = [](const char* id) {
    return Json{{"type", "function_call_output"}, {"call_id", id}, {"output", "r"}};
  };
  const Json tools = Json::array({tool("f")});
  // One message of the assistant has the text and both calls.
  EXPECT_EQ(prompt({asked, said, called("1"), called("2"), gave("1"), gave("2")}, tools),
            "T:f;user:q;assistant:af={\"x\": 1}f={\"x\": 1};tool:r;tool:r;assistant:");
  EXPECT_EQ(prompt({{{"role", "developer"}, {"content", "d"}}, asked, called("1"), gave("1")},
                   Json::array()),
            "system:d;user:q;assistant:f={\"x\": 1};tool:r;assistant:");
  EXPECT_EQ(prompt({said, said, asked}, Json::array()),
            "assistant:a;assistant:a;user:q;assistant:");
}

TEST_F(Responses, GiveReasoningAnItemAndTakeItBack) {
  write("why</think>yes");
  reasons();
  begin();
  const Json thought = {{"type", "reasoning"},
                        {"id", "rs"},
                        {"summary", Json::array()},
                        {"content", {{{"type", "reasoning_text"}, {"text", "t"}}}}};
  const Json said = {{"role", "assistant"}, {"content", "a"}};
  const Json json = answer({{"input", {thought, said, {{"role", "user"}, {"content", "q"}}}},
                            {"reasoning", {{"effort", "low"}, {"summary", "auto"}}},
                            {"include", {"message.output_text.logprobs"}}});
  ASSERT_EQ(json["output"].size(), 2U);
  EXPECT_EQ(json["output"][0]["type"], "reasoning");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], "why");
  const Json& content = json["output"][1]["content"][0];
  EXPECT_EQ(content["text"], "yes");
  ASSERT_EQ(content["logprobs"].size(), 4U);  // the end is a token too
  EXPECT_EQ(content["logprobs"][0]["token"], "y");
  EXPECT_EQ(json["reasoning"]["effort"], "low");
  EXPECT_EQ(json["usage"]["output_tokens_details"]["reasoning_tokens"], 11);
  // "assistant:t|a;user:|q;low<think>"
  EXPECT_EQ(json["usage"]["input_tokens"], 32);
}

TEST_F(Responses, CallTools) {
  write("So:\n<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>");
  begin();
  const Json json = answer({{"input", "q"}, {"tools", {tool("f"), tool("g")}}});
  ASSERT_EQ(json["output"].size(), 2U);
  EXPECT_EQ(json["output"][1]["type"], "function_call");
  EXPECT_EQ(json["output"][1]["name"], "f");
  EXPECT_EQ(json["output"][1]["arguments"], "{\"x\":1}");
  EXPECT_EQ(json["status"], "completed");
  const Json must = answer({{"input", "q"},
                            {"tools", {tool("f"), tool("g")}},
                            {"tool_choice", {{"type", "function"}, {"name", "g"}}}});
  ASSERT_EQ(must["output"].size(), 1U);
  EXPECT_EQ(must["output"][0]["name"], "g");
}

TEST_F(Responses, HoldTextsToAFormat) {
  write("x");
  begin();
  const auto text = [&](const Json& format) {
    const Json json = answer({{"input", "q"}, {"text", {{"format", format}}}});
    EXPECT_EQ(json["text"]["format"], format);
    return json["output"][0]["content"][0]["text"].get<std::string>();
  };
  EXPECT_EQ(text({{"type", "json_schema"}, {"name", "n"}, {"schema", {{"const", 7}}}}), "7");
  EXPECT_THAT(text({{"type", "json_object"}}), testing::StartsWith("{"));
  EXPECT_EQ(text({{"type", "text"}}), "x");
}

// The items and the usage of a stream are those of the answer at once, whose texts the deltas join
// to.
TEST_F(Responses, StreamTypedEventsOfTheSameAnswer) {
  reasons();
  write("why</think>\n\nSo:\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>");
  begin();
  Json body = {{"input", "q"}, {"tools", {tool("f")}}, {"top_logprobs", 1}};
  Json whole = answer(body);
  body["stream"] = true;
  const std::vector<Json> events = typed_stream("/v1/responses", body);
  ASSERT_GT(events.size(), 10U);
  std::string text;
  std::string reasoning;
  std::string arguments;
  std::size_t likelihoods = 0;
  for (std::size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i]["sequence_number"], i);
    const std::string type = events[i]["type"];
    if (type == "response.output_text.delta") {
      text += events[i]["delta"];
      likelihoods += events[i]["logprobs"].size();
    }
    if (type == "response.reasoning_text.delta") reasoning += events[i]["delta"];
    if (type == "response.function_call_arguments.delta") arguments += events[i]["delta"];
  }
  EXPECT_EQ(events[0]["type"], "response.created");
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events.back()["type"], "response.completed");
  Json last = events.back()["response"];
  EXPECT_EQ(text, whole["output"][1]["content"][0]["text"].get<std::string>());
  EXPECT_EQ(reasoning, "why");
  EXPECT_EQ(arguments, "{}");
  EXPECT_EQ(likelihoods, whole["output"][1]["content"][0]["logprobs"].size());
  for (Json* json : {&whole, &last}) {
    for (Json& item : (*json)["output"]) {
      item.erase("id");
      item.erase("call_id");
    }
    json->erase("id");
    json->erase("created_at");
  }
  EXPECT_EQ(last, whole);
}

TEST_F(Responses, StreamAnEmptyTextAndACutOne) {
  write("");
  begin();
  const auto types = [&](const Json& body) {
    std::vector<std::string> list;
    for (const Json& event : typed_stream("/v1/responses", body)) list.push_back(event["type"]);
    return list;
  };
  EXPECT_THAT(types({{"input", "q"}, {"stream", true}}),
              testing::ElementsAre("response.created", "response.in_progress",
                                   "response.output_item.added", "response.content_part.added",
                                   "response.output_text.done", "response.content_part.done",
                                   "response.output_item.done", "response.completed"));
  write("abc");
  EXPECT_EQ(types({{"input", "q"}, {"stream", true}, {"max_output_tokens", 2}}).back(),
            "response.incomplete");
  model_.engine_of_it.fails_after = 0;
  const std::vector<Json> events =
      typed_stream("/v1/responses", {{"input", "q"}, {"stream", true}});
  EXPECT_EQ(events.back()["type"], "response.failed");
  EXPECT_THAT(events.back()["response"]["error"]["message"].get<std::string>(),
              HasSubstr("weights are bad"));
}

TEST_F(Responses, RefuseWhatTheyCannotDo) {
  begin();
  const Json base = {{"input", "q"}};
  const auto with = [&](const char* field, Json value) {
    Json body = base;
    body[field] = std::move(value);
    return refused(body);
  };
  EXPECT_EQ(with("previous_response_id", "resp_1"),
            "previous_response_id: got \"resp_1\", wanted nothing (answers are not stored; send "
            "the items before in input)");
  EXPECT_THAT(with("store", true), HasSubstr("answers are not stored"));
  EXPECT_THAT(with("background", true), HasSubstr("wanted false"));
  EXPECT_THAT(with("truncation", "auto"), HasSubstr("wanted \"disabled\""));
  EXPECT_THAT(with("include", {"file_search_call.results"}), HasSubstr("message.output_text"));
  EXPECT_THAT(with("tools", {{{"type", "web_search"}}}), HasSubstr("tools[0].type"));
  EXPECT_THAT(with("tool_choice", "required"), HasSubstr("there are no tools"));
  EXPECT_THAT(with("reasoning", {{"effort", "low"}}), HasSubstr("does not read it"));
  EXPECT_THAT(with("text", {{"verbosity", "low"}}), HasSubstr("text.verbosity"));
  EXPECT_THAT(with("text", {{"format", {{"type", "xml"}}}}), HasSubstr("text.format.type"));
  EXPECT_THAT(with("metadata", {{"k", 1}}), HasSubstr("an object of strings"));
  EXPECT_THAT(with("max_tokens", 5), HasSubstr("unknown field \"max_tokens\""));
  EXPECT_THAT(with("input", Json::array()), HasSubstr("at least one item"));
  EXPECT_THAT(with("input", {{{"type", "item_reference"}, {"id", "x"}}}),
              HasSubstr("input[0].type"));
  EXPECT_THAT(with("input", {{{"role", "user"}, {"content", {{{"type", "input_image"}}}}}}),
              HasSubstr("input[0].content[0].type"));
  EXPECT_THAT(
      with("input", {{{"type", "function_call_output"}, {"call_id", "1"}, {"output", "r"}}}),
      HasSubstr("the call_id of a function_call before it"));
}

}  // namespace
}  // namespace piton
