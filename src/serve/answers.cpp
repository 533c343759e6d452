#include "serve/answers.h"

#include <algorithm>

#include "generate/constraints/token_bytes.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

const char* reason_name(FinishReason reason, bool has_calls = false) {
  if (has_calls && reason != FinishReason::kLength) return "tool_calls";
  return reason == FinishReason::kLength ? "length" : "stop";
}

Json usage_json(TokenUsage usage) {
  Json json = {{"prompt_tokens", usage.prompt},
               {"completion_tokens", usage.written},
               {"total_tokens", usage.prompt + usage.written}};
  if (usage.reasoning) json["completion_tokens_details"] = {{"reasoning_tokens", *usage.reasoning}};
  return json;
}

// What a token adds to a text; special tokens by their names.
std::string bytes_of(const Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.is_special(id) ? tokenizer.piece(id) : token_bytes(tokenizer, id);
}

}  // namespace

std::string json_line(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string stream_event(const Json& json) { return "data: " + json_line(json) + "\n\n"; }

AnswerForm::AnswerForm(const TextRequest& request, const ServedModel& model, std::string id,
                       std::int64_t created)
    : request_(request), model_(model), id_(std::move(id)), created_(created) {}

Json AnswerForm::head(bool streams) const {
  const char* object = !request_.chat ? "text_completion"
                       : streams      ? "chat.completion.chunk"
                                      : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_.name_of(request_.adapter)}};
}

Json AnswerForm::chat_token(const LikelyToken& token) const {
  const std::string bytes = bytes_of(model_.tokenizer(), token.id);
  Json values = Json::array();
  for (const char byte : bytes) values.push_back(static_cast<std::uint8_t>(byte));
  return {{"token", replace_bad_utf8(bytes)},
          {"logprob", token.log_probability},
          {"bytes", std::move(values)}};
}

Json AnswerForm::log_probabilities(const Choice& choice) const {
  if (!request_.likeliest) return nullptr;
  if (request_.chat) {
    Json content = Json::array();
    for (const GeneratedToken& token : choice.tokens) {
      Json entry = chat_token(token);
      entry["top_logprobs"] = Json::array();
      for (const LikelyToken& other : token.likeliest)
        entry["top_logprobs"].push_back(chat_token(other));
      content.push_back(std::move(entry));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  const Tokenizer& tokenizer = model_.tokenizer();
  const auto name_of = [&](std::int32_t id) { return replace_bad_utf8(bytes_of(tokenizer, id)); };
  Json tokens = Json::array();
  Json likelihoods = Json::array();
  Json likeliest = Json::array();
  Json offsets = Json::array();
  for (std::size_t i = 0; i < choice.tokens.size(); ++i) {
    const GeneratedToken& token = choice.tokens[i];
    const bool unknown = i == 0 && choice.first_is_unknown;
    const std::string name = name_of(token.id);
    tokens.push_back(name);
    offsets.push_back(choice.offsets[i]);
    likelihoods.push_back(unknown ? Json() : Json(token.log_probability));
    if (unknown || *request_.likeliest == 0) {
      likeliest.push_back(nullptr);
      continue;
    }
    Json names = Json::object();
    for (const LikelyToken& other : token.likeliest) {
      const std::string other_name = name_of(other.id);
      // Two tokens that are parts of characters may have one name: the likelier one stays.
      if (!names.contains(other_name)) names[other_name] = other.log_probability;
    }
    if (!names.contains(name)) names[name] = token.log_probability;
    likeliest.push_back(std::move(names));
  }
  return {{"text_offset", std::move(offsets)},
          {"token_logprobs", std::move(likelihoods)},
          {"tokens", std::move(tokens)},
          {"top_logprobs", std::move(likeliest)}};
}

Json AnswerForm::whole(std::span<const Choice> choices, TokenUsage usage) const {
  Json answer = head(/*streams=*/false);
  answer["choices"] = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    Json one = {{"index", i}};
    if (request_.chat) {
      const bool has_text = choices[i].calls.empty() ||
                            choices[i].text.find_first_not_of(" \t\r\n") != std::string::npos;
      one["message"] = {{"role", "assistant"},
                        {"content", has_text ? Json(choices[i].text) : Json()},
                        {"refusal", nullptr}};
      if (!choices[i].reasoning.empty()) one["message"]["reasoning_content"] = choices[i].reasoning;
      if (!choices[i].calls.empty()) one["message"]["tool_calls"] = calls_json(i, choices[i].calls);
    } else {
      one["text"] = choices[i].text;
    }
    one["logprobs"] = log_probabilities(choices[i]);
    one["finish_reason"] = reason_name(choices[i].reason, !choices[i].calls.empty());
    answer["choices"].push_back(std::move(one));
  }
  answer["usage"] = usage_json(usage);
  return answer;
}

Json AnswerForm::first_part(std::size_t index) const {
  Json answer = head(/*streams=*/true);
  Json one = {{"index", index}};
  one["delta"] = {{"role", "assistant"}, {"content", ""}};
  one["logprobs"] = nullptr;
  one["finish_reason"] = nullptr;
  answer["choices"] = Json::array({std::move(one)});
  return answer;
}

Json AnswerForm::part(std::size_t index, const Choice& choice) const {
  Json answer = head(/*streams=*/true);
  Json one = {{"index", index}};
  if (request_.chat) {
    one["delta"] = Json::object();
    if (!choice.reasoning.empty()) one["delta"]["reasoning_content"] = choice.reasoning;
    if (choice.reasoning.empty() || !choice.text.empty()) one["delta"]["content"] = choice.text;
  } else {
    one["text"] = choice.text;
  }
  one["logprobs"] = log_probabilities(choice);
  one["finish_reason"] = nullptr;
  answer["choices"] = Json::array({std::move(one)});
  return answer;
}

Json AnswerForm::calls_json(std::size_t index, std::span<const FunctionCall> calls) const {
  Json list = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    list.push_back({{"id", fmt::format("call_{}_{}_{}", id_, index, i)},
                    {"type", "function"},
                    {"function", {{"name", calls[i].name}, {"arguments", calls[i].arguments}}}});
  }
  return list;
}

Json AnswerForm::calls_part(std::size_t index, std::span<const FunctionCall> calls) const {
  Json list = calls_json(index, calls);
  for (std::size_t i = 0; i < list.size(); ++i) list[i]["index"] = i;
  Json answer = head(/*streams=*/true);
  Json one = {{"index", index}};
  one["delta"] = {{"tool_calls", std::move(list)}};
  one["logprobs"] = nullptr;
  one["finish_reason"] = nullptr;
  answer["choices"] = Json::array({std::move(one)});
  return answer;
}

Json AnswerForm::last_part(std::size_t index, FinishReason reason, bool has_calls) const {
  Json answer = head(/*streams=*/true);
  Json one = {{"index", index}};
  if (request_.chat) {
    one["delta"] = Json::object();
  } else {
    one["text"] = "";
  }
  one["logprobs"] = nullptr;
  one["finish_reason"] = reason_name(reason, has_calls);
  answer["choices"] = Json::array({std::move(one)});
  return answer;
}

Json AnswerForm::usage_part(TokenUsage usage) const {
  Json answer = head(/*streams=*/true);
  answer["choices"] = Json::array();
  answer["usage"] = usage_json(usage);
  return answer;
}

}  // namespace piton
