#include "serve/text_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "scripted_service.h"
#include "serve/http/request_error.h"
#include "serve/sampling_fields.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using test::Service;
using testing::HasSubstr;

TEST_F(Service, CompletesPrompts) {
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t draw) {
    return prompt + std::to_string(draw);
  };
  begin();
  const Json answer = post("/v1/completions", {{"prompt", {"a", "b"}}, {"n", 2}, {"seed", -1}});
  EXPECT_EQ(answer["object"], "text_completion");
  std::vector<std::string> texts;
  for (const Json& choice : answer["choices"]) texts.push_back(choice["text"]);
  EXPECT_THAT(texts, testing::ElementsAre("a0", "a1", "b0", "b1"));
  EXPECT_EQ(answer["choices"][3]["index"], 3);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 2);
  EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
  EXPECT_EQ(post("/v1/completions", {{"prompt", "abc"}, {"max_tokens", 2}})["choices"][0]["text"],
            "ab");
  EXPECT_EQ(post("/v1/completions", {{"prompt", {97, 98}}})["choices"][0]["text"], "ab0");
  EXPECT_EQ(post("/v1/completions", {{"prompt", "abc"}, {"stop", "c"}})["choices"][0]["text"],
            "ab");
}

// Bytes, of which 1, 2 and 3 are the marks of a gap.
class BytesWithMarks final : public Tokenizer {
 public:
  void encode(std::string_view text, EncodeOptions options,
              std::vector<std::int32_t>& out) const override {
    bytes_.encode(text, options, out);
  }
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options) const override {
    return bytes_.decode(ids, options);
  }
  std::string piece(std::int32_t id) const override { return bytes_.piece(id); }
  std::optional<std::int32_t> id_of(std::string_view piece) const override {
    const std::map<std::string_view, std::int32_t> marks{
        {"<|fim_prefix|>", 1}, {"<|fim_suffix|>", 2}, {"<|fim_middle|>", 3}};
    const auto found = marks.find(piece);
    return found == marks.end() ? bytes_.id_of(piece) : found->second;
  }
  std::int64_t vocabulary_size() const override { return bytes_.vocabulary_size(); }
  bool is_special(std::int32_t id) const override { return bytes_.is_special(id); }

 private:
  ByteTokenizer bytes_;
};

TEST_F(Service, FillsGaps) {
  model_.other_tokenizer = std::make_shared<BytesWithMarks>();
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) {
    return prompt ==
                   "\x01"
                   "a(\x02)b\x03"
               ? "x"
               : "?";
  };
  begin();
  const auto text = [&](const Json& body) {
    return post("/v1/completions", body)["choices"][0]["text"].get<std::string>();
  };
  EXPECT_EQ(text({{"prompt", "a("}, {"suffix", ")b"}}), "x");
  EXPECT_EQ(text({{"prompt", "a("}, {"suffix", ""}}), "?");
  EXPECT_EQ(text({{"prompt", ""}, {"suffix", ")b"}}), "?");
  const auto refused = [&](const Json& body) {
    return post("/v1/completions", body, 400)["error"]["param"].get<std::string>();
  };
  EXPECT_EQ(refused({{"prompt", {"a", "b"}}, {"suffix", ")b"}}), "prompt");
  EXPECT_EQ(refused({{"prompt", "a"}, {"suffix", ")b"}, {"echo", true}}), "echo");
  EXPECT_EQ(refused({{"prompt", std::string(150, 'a')}, {"suffix", std::string(60, 'b')}}),
            "prompt");
}

TEST_F(Service, EchoesPromptsWithTheirLikelihoods) {
  begin();
  const Json answer = post("/v1/completions",
                           {{"prompt", "né"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}});
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["text"], "né");
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["logprobs"]["token_logprobs"], Json({nullptr, -1.0, -1.0}));
  EXPECT_EQ(choice["logprobs"]["tokens"][0], "n");
  EXPECT_TRUE(choice["logprobs"]["top_logprobs"][0].is_null());
  EXPECT_EQ(choice["logprobs"]["text_offset"][1], 1);
  const Json more = post("/v1/completions", {{"prompt", "p"}, {"echo", true}, {"logprobs", 0}});
  EXPECT_EQ(more["choices"][0]["text"], "pok");
  EXPECT_EQ(more["choices"][0]["logprobs"]["tokens"].size(), 4U);  // the end is a token too
  EXPECT_EQ(more["choices"][0]["logprobs"]["text_offset"], Json({0, 1, 2, 3}));
  post("/v1/completions", {{"prompt", "!x"}, {"echo", true}, {"logprobs", 0}}, 400);
  EXPECT_EQ(post("/v1/completions", {{"prompt", "p"}, {"echo", true}})["choices"][0]["text"],
            "pok");
}

TEST_F(Service, AnswersChats) {
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) { return prompt; };
  begin();
  const Json messages = {{{"role", "developer"}, {"content", "s"}},
                         {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "q"}}}}}};
  const Json answer = post(
      "/v1/chat/completions",
      {{"model", "scripted"}, {"messages", messages}, {"logprobs", true}, {"top_logprobs", 2}});
  EXPECT_EQ(answer["object"], "chat.completion");
  const Json& choice = answer["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], "system:s;user:q;assistant:");
  EXPECT_EQ(choice["logprobs"]["content"][0]["token"], "s");
  EXPECT_EQ(choice["logprobs"]["content"][0]["bytes"], Json({'s'}));
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].size(), 2U);
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  const Json with_tools =
      post("/v1/chat/completions", {{"messages", messages}, {"tools", Json::array({tool})}});
  EXPECT_THAT(with_tools["choices"][0]["message"]["content"].get<std::string>(),
              testing::StartsWith("T:f;"));
  const Json without =
      post("/v1/chat/completions",
           {{"messages", messages}, {"tools", Json::array({tool})}, {"tool_choice", "none"}});
  EXPECT_EQ(without["choices"][0]["message"]["content"], "system:s;user:q;assistant:");
}

TEST_F(Service, RefusesToolsThatTheTemplateLeavesOut) {
  model_.template_of_it =
      ChatTemplate("{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}",
                   Json::object(), "test.jinja");
  begin();
  const Json function = {{"name", "f"}, {"arguments", "{}"}};
  const Json call = {{"id", "1"}, {"type", "function"}, {"function", function}};
  const Json user = {{"role", "user"}, {"content", "q"}};
  const auto refused = [&](const Json& messages, const Json& tools) {
    return post("/v1/chat/completions", {{"messages", messages}, {"tools", tools}}, 400)["error"];
  };
  const Json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  const Json of_tools = refused(Json::array({user}), Json::array({tool}));
  EXPECT_EQ(of_tools["param"], "tools");
  EXPECT_THAT(of_tools["message"].get<std::string>(),
              HasSubstr("the model's chat template does not write tools"));
  const Json called = {{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({call})}};
  const Json result = {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "3"}};
  const Json of_calls = refused({user, called, result}, Json::array());
  EXPECT_EQ(of_calls["param"], "messages");
  EXPECT_THAT(of_calls["message"].get<std::string>(), HasSubstr("does not write tool calls"));
  // Tools that are not to be called are not given to the template.
  post(
      "/v1/chat/completions",
      {{"messages", Json::array({user})}, {"tools", Json::array({tool})}, {"tool_choice", "none"}});
}

TEST_F(Service, AcceptsFieldsThatChangeNothing) {
  begin();
  Json body = {{"messages", Json::array({{{"role", "user"}, {"content", "q"}}})},
               {"modalities", {"text"}},
               {"prediction", {{"type", "content"}, {"content", "a"}}},
               {"logit_bias", Json::object()},
               {"store", false}};
  EXPECT_EQ(post("/v1/chat/completions", body)["choices"][0]["message"]["content"], "ok");
  body["prediction"] = nullptr;
  body["modalities"] = nullptr;
  post("/v1/chat/completions", body);
}

SamplingOptions sampling_of(const Json& request, const ServedModel& model) {
  RequestFields fields(request, "");
  SamplingOptions sampling;
  read_sampling(fields, sampling, model);
  fields.refuse_others();
  return sampling;
}

// As llama.cpp's server: Mirostat leaves filters aside, and nothing is drawn at temperature 0.
TEST_F(Service, FollowsTheUncertainty) {
  Json request = {{"temperature", 0.8},     {"top_k", 40},         {"min_p", 0.1},
                  {"dynatemp_range", 0.5},  {"mirostat", 2},       {"mirostat_tau", 3.5},
                  {"dynatemp_exponent", 2}, {"mirostat_eta", 0.25}};
  const SamplingOptions bounded = sampling_of(request, model_);
  EXPECT_FALSE(bounded.has_filters());
  EXPECT_EQ(bounded.dynatemp_range, 0);
  EXPECT_EQ(bounded.temperature, 0.8);
  EXPECT_EQ(bounded.mirostat, 2);
  EXPECT_EQ(bounded.mirostat_surprise, 3.5);
  EXPECT_EQ(bounded.mirostat_rate, 0.25);
  bounded.check(model_.vocabulary());
  request["mirostat"] = 0;
  const SamplingOptions filtered = sampling_of(request, model_);
  EXPECT_EQ(filtered.top_k, 40);
  EXPECT_EQ(filtered.dynatemp_range, 0.5);
  EXPECT_EQ(filtered.dynatemp_exponent, 2);
  const SamplingOptions greedy = sampling_of({{"temperature", 0}, {"mirostat", 2}}, model_);
  EXPECT_TRUE(greedy.greedy);
  EXPECT_EQ(greedy.mirostat, 0);
  EXPECT_FALSE(sampling_of({{"temperature", 0}, {"dynatemp_range", 1}}, model_).greedy);
}

TEST_F(Service, StreamsTheSameText) {
  model_.engine_of_it.write = [](const std::string&, std::uint64_t) { return "aé STOP no"; };
  begin();
  const Json messages = Json::array({{{"role", "user"}, {"content", "q"}}});
  const auto events =
      stream("/v1/chat/completions", {{"messages", messages},
                                      {"stream", true},
                                      {"stop", {"STOP"}},
                                      {"n", 2},
                                      {"stream_options", {{"include_usage", true}}}});
  std::map<int, std::string> texts;
  std::map<int, std::string> reasons;
  for (const Json& event : events) {
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    for (const Json& choice : event["choices"]) {
      if (choice["delta"].contains("content"))
        texts[choice["index"]] += choice["delta"]["content"].get<std::string>();
      if (!choice["finish_reason"].is_null()) reasons[choice["index"]] = choice["finish_reason"];
    }
  }
  EXPECT_EQ(texts[0], "aé ");
  EXPECT_EQ(texts[1], "aé ");
  EXPECT_EQ(reasons[1], "stop");
  EXPECT_EQ(events.back()["usage"]["prompt_tokens"], 17);
  const auto plain = stream("/v1/completions",
                            {{"prompt", "p"}, {"stream", true}, {"echo", true}, {"logprobs", 0}});
  std::string text;
  std::size_t tokens = 0;
  for (const Json& event : plain) {
    text += event["choices"][0]["text"].get<std::string>();
    if (!event["choices"][0]["logprobs"].is_null())
      tokens += event["choices"][0]["logprobs"]["tokens"].size();
  }
  EXPECT_EQ(text, "paé STOP no");
  EXPECT_EQ(tokens, 13U);  // a prompt of 1, 11 bytes, the end
}

TEST_F(Service, FindsCallsOfTools) {
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) -> std::string {
    if (prompt.find("plain") != prompt.npos) return "no <call>";
    if (prompt.find("must") != prompt.npos) return "{\"name\": \"g\", \"arguments\": {}}";
    return "So:\n<tool_call>{\"name\": \"f\", \"arguments\": {\"x\": 1}}</tool_call>"
           "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>";
  };
  begin();
  const auto body = [](const char* question, Json more = Json::object()) {
    more["messages"] = Json::array({{{"role", "user"}, {"content", question}}});
    more["tools"] = Json::array();
    for (const char* name : {"f", "g"})
      more["tools"].push_back({{"type", "function"}, {"function", {{"name", name}}}});
    more["max_tokens"] = 150;
    return more;
  };
  const Json answer = post("/v1/chat/completions", body("q"))["choices"][0];
  EXPECT_EQ(answer["finish_reason"], "tool_calls");
  EXPECT_EQ(answer["message"]["content"], "So:\n");
  ASSERT_EQ(answer["message"]["tool_calls"].size(), 2U);
  const Json& call = answer["message"]["tool_calls"][0];
  EXPECT_EQ(call["type"], "function");
  EXPECT_EQ(call["function"]["name"], "f");
  EXPECT_EQ(call["function"]["arguments"], "{\"x\":1}");
  EXPECT_NE(call["id"], answer["message"]["tool_calls"][1]["id"]);
  const Json one = post("/v1/chat/completions", body("q", {{"parallel_tool_calls", false}}));
  EXPECT_EQ(one["choices"][0]["message"]["tool_calls"].size(), 1U);
  const Json plain = post("/v1/chat/completions", body("plain"))["choices"][0];
  EXPECT_EQ(plain["finish_reason"], "stop");
  EXPECT_EQ(plain["message"]["content"], "no <call>");
  EXPECT_FALSE(plain["message"].contains("tool_calls"));
  // A call that must be.
  for (const Json& choice :
       {Json("required"), Json{{"type", "function"}, {"function", {{"name", "g"}}}}}) {
    const Json must =
        post("/v1/chat/completions", body("must", {{"tool_choice", choice}}))["choices"][0];
    EXPECT_EQ(must["finish_reason"], "tool_calls") << must;
    EXPECT_TRUE(must["message"]["content"].is_null());
    ASSERT_EQ(must["message"]["tool_calls"].size(), 1U);
    EXPECT_EQ(must["message"]["tool_calls"][0]["function"]["name"], "g");
  }
  post("/v1/chat/completions",
       body("q", {{"tool_choice", {{"type", "function"}, {"function", {{"name", "h"}}}}}}), 400);
  post("/v1/chat/completions", body("q", {{"tool_choice", 3}}), 400);
  post("/v1/chat/completions", body("q", {{"tool_choice", "required"}, {"guided_regex", "x"}}),
       400);
  // Streams have the text, then the calls.
  std::string text;
  Json calls;
  std::string reason;
  for (const Json& event : stream("/v1/chat/completions", body("q", {{"stream", true}}))) {
    const Json& choice = event["choices"][0];
    if (choice["delta"].contains("content")) text += choice["delta"]["content"].get<std::string>();
    if (choice["delta"].contains("tool_calls")) calls = choice["delta"]["tool_calls"];
    if (!choice["finish_reason"].is_null()) reason = choice["finish_reason"];
  }
  EXPECT_EQ(text, "So:\n");
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[1]["index"], 1);
  EXPECT_EQ(calls[1]["function"]["name"], "g");
  EXPECT_EQ(reason, "tool_calls");
}

// What a client sends back of an answer with calls: arguments are a text there.
TEST_F(Service, GivesArgumentsOfEarlierCallsToTheTemplateAsValues) {
  std::string asked;
  model_.engine_of_it.write = [&](const std::string& prompt, std::uint64_t) {
    asked = prompt;
    return "ok";
  };
  begin();
  const auto prompt_with = [&](const Json& arguments) {
    const Json call = {
        {"id", "1"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", arguments}}}};
    post("/v1/chat/completions",
         {{"messages",
           {{{"role", "user"}, {"content", "q"}},
            {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}},
            {{"role", "tool"}, {"tool_call_id", "1"}, {"content", "3"}}}}});
    return asked;
  };
  const std::string wanted = "user:q;assistant:f={\"x\": 1};tool:3;assistant:";
  EXPECT_EQ(prompt_with("{\"x\":1}"), wanted);
  EXPECT_EQ(prompt_with({{"x", 1}}), wanted);
  // No object: as it is.
  EXPECT_EQ(prompt_with("x"), "user:q;assistant:f=\"x\";tool:3;assistant:");
}

TEST_F(Service, GivesVectorsOfTexts) {
  begin();
  const Json answer = post("/v1/embeddings", {{"input", {"abc", "x"}}});
  EXPECT_EQ(answer["object"], "list");
  ASSERT_EQ(answer["data"].size(), 2U);
  EXPECT_EQ(answer["data"][1]["index"], 1);
  EXPECT_EQ(answer["data"][1]["object"], "embedding");
  EXPECT_FLOAT_EQ(answer["data"][1]["embedding"][0].get<float>(), 0.6F);
  EXPECT_FLOAT_EQ(answer["data"][1]["embedding"][1].get<float>(), -0.8F);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 4);
  // 0.6 is 0x3F19999A, -0.8 is 0xBF4CCCCD.
  const Json coded = post("/v1/embeddings", {{"input", {97, 98}}, {"encoding_format", "base64"}});
  EXPECT_EQ(coded["data"][0]["embedding"], "mpkZP83MTL8=");
  for (const Json& bad :
       {Json{{"input", ""}}, Json{{"input", Json::array()}}, Json{{"input", 1}}, Json::object(),
        Json{{"input", "a"}, {"encoding_format", "int8"}}, Json{{"input", "a"}, {"dimensions", 2}},
        Json{{"input", std::string(300, 'a')}}, Json{{"input", "!"}},
        Json{{"input", "a"}, {"x", 1}}})
    post("/v1/embeddings", bad, 400);
}

// As OpenAI does, also where a text without a word has the token that begins it.
TEST_F(Service, GivesNoVectorOfAnEmptyText) {
  model_.bos = ByteTokenizer::kEndOfDocument;
  begin();
  for (const char* text : {R"("")", R"(["a",""])", "[]", "[[1],[]]"}) {
    const Json empty = Json::parse(text);
    const Json answer = post("/v1/embeddings", {{"input", empty}}, 400);
    EXPECT_EQ(answer["error"]["param"], "input");
    EXPECT_EQ(answer["error"]["message"], std::string("input: got ") + text +
                                              ", wanted texts or lists of ids that are not empty");
  }
  EXPECT_EQ(post("/v1/embeddings", {{"input", " "}})["usage"]["prompt_tokens"], 2);
}

TEST_F(Service, KeepsConstraints) {
  model_.engine_of_it.write = [](const std::string&, std::uint64_t) { return "{\"x\": 12}"; };
  begin();
  const auto text = [&](Json body) {
    body["prompt"] = "p";
    body["max_tokens"] = 60;
    return post("/v1/completions", body)["choices"][0]["text"].get<std::string>();
  };
  const Json schema = {{"type", "object"},
                       {"properties", {{"x", {{"type", "integer"}, {"maximum", 9}}}}},
                       {"required", {"x"}}};
  const Json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "n"}, {"schema", schema}}}};
  EXPECT_EQ(text({{"response_format", format}}), "{\"x\": 1}");
  EXPECT_EQ(text({{"guided_json", schema}}), "{\"x\": 1}");
  EXPECT_EQ(text({{"response_format", {{"type", "json_object"}}}}), "{\"x\": 12}");
  EXPECT_EQ(text({{"guided_choice", {"yes"}}}), "yes");
  EXPECT_EQ(text({{"guided_regex", "[0-9]{3}"}}).size(), 3U);
  // The empty text has no token to count.
  const Json none = post("/v1/completions", {{"prompt", "p"}, {"guided_regex", ""}});
  EXPECT_EQ(none["choices"][0]["text"], "");
  EXPECT_EQ(none["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(none["usage"]["completion_tokens"], 0);
  EXPECT_EQ(none["usage"]["total_tokens"], 1);
  const Json error = post("/v1/completions", {{"prompt", "p"}, {"guided_json", false}}, 400);
  EXPECT_EQ(error["error"]["param"], "guided_json");
  post("/v1/completions", {{"prompt", "p"}, {"guided_json", schema}, {"guided_regex", "a"}}, 400);
}

TEST_F(Service, RefusesWhatIsNoRequest) {
  begin();
  const Json user = Json::array({{{"role", "user"}, {"content", "q"}}});
  struct Case {
    const char* path;
    Json body;
    const char* field;
  };
  const Case cases[] = {
      {"/v1/completions", {{"prompt", 1}}, "prompt"},
      {"/v1/completions", Json::object(), "prompt"},
      {"/v1/completions", {{"prompt", ""}}, "prompt"},
      {"/v1/completions", {{"prompt", Json::array()}}, "prompt"},
      {"/v1/completions", {{"prompt", {1, "a"}}}, "prompt"},
      {"/v1/completions", {{"prompt", {-1}}}, "prompt"},
      {"/v1/completions", {{"prompt", {257}}}, "prompt"},
      {"/v1/completions", {{"prompt", std::string(200, 'a')}}, "prompt"},
      {"/v1/completions", {{"prompt", "p"}, {"max_tokens", 0}}, "max_tokens"},
      {"/v1/completions", {{"prompt", "p"}, {"max_tokens", -5}}, "max_tokens"},
      {"/v1/completions", {{"prompt", "p"}, {"temperature", -1}}, "temperature"},
      {"/v1/completions", {{"prompt", "p"}, {"top_p", 0}}, "top_p"},
      {"/v1/completions", {{"prompt", "p"}, {"n", 1000}}, "n"},
      {"/v1/completions", {{"prompt", {"p", "q"}}, {"n", 128}}, "n"},
      {"/v1/completions", {{"prompt", "p"}, {"logit_bias", {{"1", 200}}}}, "logit_bias"},
      {"/v1/completions", {{"prompt", "p"}, {"logit_bias", {{"1x", 2}}}}, "logit_bias"},
      {"/v1/completions", {{"prompt", "p"}, {"logit_bias", {{"257", 2}}}}, "logit_bias"},
      {"/v1/completions", {{"prompt", "p"}, {"logit_bias", {1, 2}}}, "logit_bias"},
      {"/v1/completions", {{"prompt", "p"}, {"no_repeat_ngram_size", -1}}, "no_repeat_ngram_size"},
      {"/v1/completions", {{"prompt", "p"}, {"suffix", "s"}}, "suffix"},
      {"/v1/completions", {{"prompt", "p"}, {"typical_p", 0}}, "typical_p"},
      {"/v1/completions", {{"prompt", "p"}, {"top_n_sigma", "1"}}, "top_n_sigma"},
      {"/v1/completions", {{"prompt", "p"}, {"xtc_probability", 2}}, "xtc_probability"},
      {"/v1/completions", {{"prompt", "p"}, {"xtc_threshold", 0}}, "xtc_threshold"},
      {"/v1/completions", {{"prompt", "p"}, {"dynatemp_range", -1}}, "dynatemp_range"},
      {"/v1/completions", {{"prompt", "p"}, {"dynatemp_exponent", 101}}, "dynatemp_exponent"},
      {"/v1/completions", {{"prompt", "p"}, {"mirostat", 1}}, "mirostat"},
      {"/v1/completions", {{"prompt", "p"}, {"mirostat_eta", 0}}, "mirostat_eta"},
      {"/v1/completions", {{"prompt", "p"}, {"mirostat_tau", 101}}, "mirostat_tau"},
      {"/v1/completions", {{"prompt", "p"}, {"dry_multiplier", -1}}, "dry_multiplier"},
      {"/v1/completions", {{"prompt", "p"}, {"dry_base", 0.5}}, "dry_base"},
      {"/v1/completions", {{"prompt", "p"}, {"dry_allowed_length", -1}}, "dry_allowed_length"},
      {"/v1/completions", {{"prompt", "p"}, {"dry_penalty_last_n", -2}}, "dry_penalty_last_n"},
      {"/v1/completions",
       {{"prompt", "p"}, {"dry_sequence_breakers", {1}}},
       "dry_sequence_breakers"},
      {"/v1/completions", {{"prompt", "p"}, {"stop", ""}}, "stop"},
      {"/v1/completions", {{"prompt", "p"}, {"stream", 1}}, "stream"},
      {"/v1/completions", {{"prompt", "p"}, {"logprobs", 1000}}, "logprobs"},
      {"/v1/completions", {{"prompt", "p"}, {"best_of", 3}}, "best_of"},
      {"/v1/chat/completions",
       {{"messages", user}, {"modalities", {"text", "audio"}}},
       "modalities"},
      {"/v1/completions", {{"prompt", "p"}, {"promt", "p"}}, "promt"},
      {"/v1/completions", {{"prompt", "p"}, {"stream_options", Json::object()}}, "stream_options"},
      {"/v1/chat/completions", Json::object(), "messages"},
      {"/v1/chat/completions", {{"messages", Json::array()}}, "messages"},
      {"/v1/chat/completions", {{"messages", {1}}}, "messages[0]"},
      {"/v1/chat/completions", {{"messages", Json::array({{{"role", "x"}}})}}, "messages[0].role"},
      {"/v1/chat/completions",
       {{"messages", Json::array({{{"role", "user"}}})}},
       "messages[0].content"},
      {"/v1/chat/completions",
       {{"messages", Json::array({{{"role", "user"}, {"content", "raise"}}})}},
       "messages"},
      {"/v1/chat/completions", {{"messages", user}, {"tools", 1}}, "tools"},
      {"/v1/chat/completions", {{"messages", user}, {"tools", {1}}}, "tools[0]"},
      {"/v1/chat/completions", {{"messages", user}, {"tool_choice", "required"}}, "tool_choice"},
      {"/v1/chat/completions", {{"messages", user}, {"top_logprobs", 2}}, "top_logprobs"},
      {"/v1/chat/completions",
       {{"messages", user}, {"response_format", {{"type", "x"}}}},
       "response_format.type"},
      {"/tokenize", Json::object(), "prompt"},
      {"/detokenize", {{"tokens", {300}}}, "tokens"},
  };
  for (const Case& one : cases) {
    const Json error = post(one.path, one.body, 400);
    EXPECT_EQ(error["error"]["param"], one.field) << one.body.dump();
    EXPECT_EQ(error["error"]["type"], "invalid_request_error");
  }
  EXPECT_THAT(post("/v1/completions", {{"prompt", std::string(200, 'a')}}, 400).dump(),
              HasSubstr("has 200 tokens and the model takes 200"));
  EXPECT_EQ(ask("/v1/completions", "{").status, 400);
  EXPECT_EQ(ask("/v1/completions", "", "GET").status, 405);
  EXPECT_EQ(ask("/v1/models", "{}").status, 405);
  EXPECT_EQ(ask("/nothing", "").status, 404);
  EXPECT_EQ(read_json<Json>(ask("/v1/messages/batches", "").body)["error"]["type"],
            "not_found_error");
  const HttpRefusal large = {
      .status = 413, .path = "/v1/messages", .body_bytes = 30, .most_body_bytes = 20};
  EXPECT_EQ(
      read_json<Json>(TextService::error_body(large))["error"].dump(),
      R"({"type":"request_too_large","message":"the body of the request has 30 bytes, wanted )"
      R"(at most 20; shorten it, or start the server with a larger --max-body-bytes"})");
  EXPECT_THAT(TextService::error_body({.status = 413, .path = "/v1/completions"}),
              AllOf(HasSubstr("\"param\""), HasSubstr("has more bytes, wanted at most 0")));
  EXPECT_EQ(ask("/v1/models/other", "", "GET").status, 404);
  EXPECT_EQ(ask("/v1/models/\xFF", "", "GET").status, 404);
  post("/v1/completions", {{"prompt", "p"}, {"model", "other"}}, 404);
  post("/v1/completions", {{"prompt", "refuse"}}, 400);  // by the engine
}

TEST_F(Service, HasTheOtherPaths) {
  begin();
  EXPECT_EQ(read_json<Json>(ask("/v1/models", "", "GET").body)["data"][0]["id"], "scripted");
  EXPECT_EQ(ask("/v1/models/scripted", "", "GET").status, 200);
  // Clients of Anthropic read other fields.
  const Json models = read_json<Json>(ask("/v1/models", "", "GET").body);
  EXPECT_EQ(models["has_more"], false);
  EXPECT_EQ(models["last_id"], "scripted");
  EXPECT_EQ(models["data"][0]["type"], "model");
  EXPECT_EQ(models["data"][0]["display_name"], "scripted");
  EXPECT_THAT(models["data"][0]["created_at"].get<std::string>(),
              testing::MatchesRegex("2...-..-..T..:..:..Z"));
  EXPECT_EQ(ask("/health", "", "GET").status, 200);
  EXPECT_THAT(ask("/", "", "GET").body, HasSubstr("<!doctype html>"));
  EXPECT_EQ(post("/tokenize", {{"prompt", "ab"}})["tokens"], Json({97, 98}));
  EXPECT_EQ(post("/detokenize", {{"tokens", {97, 98}}})["prompt"], "ab");
  post("/v1/completions", {{"prompt", "p"}});
  const std::string metrics = ask("/metrics", "", "GET").body;
  EXPECT_THAT(metrics,
              HasSubstr("piton_requests_total{path=\"/v1/completions\",status=\"200\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("piton_generated_tokens_total 3\n"));
  EXPECT_THAT(metrics, HasSubstr("piton_first_token_seconds_count 1\n"));
}

TEST_F(Service, HasAdaptersAsModels) {
  model_.adapter_names = {"sums", "poems"};
  model_.engine_of_it.by_adapter = {"1+1", "rose"};
  begin();
  const Json list = read_json<Json>(ask("/v1/models", "", "GET").body)["data"];
  ASSERT_EQ(list.size(), 3U);
  EXPECT_FALSE(list[0].contains("parent"));
  EXPECT_EQ(list[1]["id"], "sums");
  EXPECT_EQ(list[2]["parent"], "scripted");
  EXPECT_EQ(read_json<Json>(ask("/v1/models/poems", "", "GET").body), list[2]);
  const auto text_of = [&](const std::string& name) {
    const Json answer = post("/v1/completions", {{"prompt", "p"}, {"model", name}});
    EXPECT_EQ(answer["model"], name);
    return answer["choices"][0]["text"];
  };
  EXPECT_EQ(text_of("scripted"), "ok");
  EXPECT_EQ(text_of("sums"), "1+1");
  EXPECT_EQ(text_of("poems"), "rose");
  const Json chat =
      post("/v1/chat/completions",
           {{"model", "poems"}, {"messages", {{{"role", "user"}, {"content", "p"}}}}});
  EXPECT_EQ(chat["choices"][0]["message"]["content"], "rose");
  for (const Json& part :
       stream("/v1/completions", {{"prompt", "p"}, {"model", "sums"}, {"stream", true}}))
    EXPECT_EQ(part["model"], "sums");
  const auto vector_of = [&](const std::string& name) {
    const Json answer = post("/v1/embeddings", {{"input", "p"}, {"model", name}});
    EXPECT_EQ(answer["model"], name);
    return answer["data"][0]["embedding"];
  };
  EXPECT_NE(vector_of("scripted"), vector_of("sums"));
  const Json error = post("/v1/completions", {{"prompt", "p"}, {"model", "songs"}}, 404);
  EXPECT_EQ(error["error"]["message"],
            "model: \"songs\" is not here; this server has \"scripted\", \"sums\", \"poems\"");
}

TEST_F(Service, NeedsTheKey) {
  begin({.api_key = "secret"});
  EXPECT_EQ(ask("/v1/models", "", "GET").status, 401);
  for (const char* wrong :
       {"Bearer ", "Bearer secre", "Bearer secret2", "secret", "Basic secret"}) {
    key_ = wrong;
    EXPECT_EQ(ask("/v1/completions", R"({"prompt":"p"})").status, 401) << wrong;
  }
  EXPECT_EQ(ask("/health", "", "GET").status, 200);
  key_ = "Bearer secret";
  EXPECT_EQ(ask("/v1/completions", R"({"prompt":"p"})").status, 200);
}

TEST_F(Service, RefusesMoreThanTheQueueHolds) {
  model_.engine_of_it.delay = std::chrono::milliseconds(5);
  model_.engine_of_it.write = [](const std::string& prompt, std::uint64_t) {
    return std::string(prompt == "long" ? 150 : 1, 'a');
  };
  begin({}, {.running = 2, .waiting = 1});
  // Which would never be there: a client that tries again later would do so for ever.
  const Json never = post("/v1/completions", {{"prompt", "p"}, {"n", 4}}, 400);
  EXPECT_EQ(never["error"]["param"], "n");
  EXPECT_THAT(never["error"]["message"], HasSubstr("has 4 texts, and there are 3 places"));
  std::thread other([&] {
    post("/v1/completions", {{"prompt", "long"}, {"n", 2}, {"max_tokens", 150}}, 200);
  });
  while (loop_->counts().running < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  post("/v1/completions", {{"prompt", "p"}, {"n", 2}}, 429);
  other.join();
  post("/v1/completions", {{"prompt", "p"}, {"n", 3}}, 200);
}

// The tokens of a prompt are scored before the answer begins, within the same time.
TEST_F(Service, AnswersInTimeWhilePromptsAreScored) {
  model_.engine_of_it.delay = std::chrono::milliseconds(500);
  begin({.deadline = std::chrono::milliseconds(50)});
  const Json scored = {{"prompt", "ab"}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 0}};
  const HttpAnswer answer = ask("/v1/completions", scored.dump());
  EXPECT_EQ(answer.status, 504) << answer.body;
}

TEST_F(Service, FreesThePlaceOfAClientThatIsGone) {
  model_.engine_of_it.write = [](const std::string&, std::uint64_t) {
    return std::string(190, 'a');
  };
  model_.engine_of_it.delay = std::chrono::milliseconds(2);
  begin();
  const Json body = {{"prompt", "p"}, {"max_tokens", 190}, {"stream", true}};
  const HttpAnswer answer = ask("/v1/completions", body.dump());
  int parts = 0;
  answer.stream([&](std::string_view) { return ++parts < 5; }, client_);
  while (loop_->counts().running > 0) std::this_thread::yield();
  loop_->finish();
  thread_.join();
  EXPECT_EQ(model_.engine_of_it.cancelled, 1);
  EXPECT_LT(model_.engine_of_it.counts().generated_tokens, 100);
}

TEST_F(Service, CutsAnswersAtTheDeadline) {
  model_.engine_of_it.write = [](const std::string&, std::uint64_t) {
    return std::string(190, 'a');
  };
  model_.engine_of_it.delay = std::chrono::milliseconds(5);
  begin({.deadline = std::chrono::milliseconds(50)});
  post("/v1/completions", {{"prompt", "p"}, {"max_tokens", 190}}, 504);
}

TEST_F(Service, AnswersWhereTheEngineFails) {
  model_.engine_of_it.fails_after = 1;
  begin();
  EXPECT_THAT(post("/v1/completions", {{"prompt", "p"}}, 500).dump(), HasSubstr("weights are bad"));
  thread_.join();
  EXPECT_THAT(failure_, HasSubstr("weights are bad"));
  post("/v1/completions", {{"prompt", "p"}}, 503);
}

TEST_F(Service, FinishesWhatRuns) {
  model_.engine_of_it.delay = std::chrono::milliseconds(20);
  begin();
  std::thread stops([&] {
    while (loop_->counts().running == 0) std::this_thread::yield();
    loop_->finish();
  });
  EXPECT_EQ(post("/v1/completions", {{"prompt", "p"}})["choices"][0]["text"], "ok");
  stops.join();
  thread_.join();
}

}  // namespace
}  // namespace piton
