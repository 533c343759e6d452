#include "serve/completion_answer.h"

#include <utility>

#include "base/trimmed.h"
#include "serve/http/json_line.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

const char* reason_name(const AnswerEnd& end) {
  if (end.reason == FinishReason::kLength) return "length";
  return end.calls.empty() ? "stop" : "tool_calls";
}

Json usage_json(TokenUsage usage) {
  Json json = {{"prompt_tokens", usage.prompt},
               {"completion_tokens", usage.written},
               {"total_tokens", usage.prompt + usage.written},
               {"prompt_tokens_details", {{"cached_tokens", usage.reused}}}};
  if (usage.reasoning) json["completion_tokens_details"] = {{"reasoning_tokens", *usage.reasoning}};
  return json;
}

std::string data_event(const Json& json) { return "data: " + json_line(json) + "\n\n"; }

}  // namespace

CompletionAnswer::CompletionAnswer(const TextRequest& request, const ServedModel& model,
                                   std::uint64_t number)
    : request_(request),
      model_(model),
      chat_(request.kind == AnswerKind::kChat),
      id_(fmt::format("{}-{:016x}", chat_ ? "chatcmpl" : "cmpl", number)) {}

Json CompletionAnswer::head(bool streams) const {
  const char* object = !chat_    ? "text_completion"
                       : streams ? "chat.completion.chunk"
                                 : "chat.completion";
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_.name_of(request_.adapter)}};
}

Json CompletionAnswer::log_probabilities(const AnswerChoice& choice) const {
  if (!request_.likeliest) return nullptr;
  const Tokenizer& tokenizer = model_.tokenizer();
  if (chat_) return {{"content", likelihoods_json(choice.tokens, tokenizer)}, {"refusal", nullptr}};
  const auto name_of = [&](std::int32_t id) {
    return replace_bad_utf8(shown_bytes(tokenizer, id));
  };
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

Json CompletionAnswer::calls_json(std::size_t index, std::span<const FunctionCall> calls) const {
  Json list = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    list.push_back({{"id", fmt::format("call_{}_{}_{}", id_, index, i)},
                    {"type", "function"},
                    {"function", {{"name", calls[i].name}, {"arguments", calls[i].arguments}}}});
  }
  return list;
}

Json CompletionAnswer::whole(std::span<const AnswerChoice> choices, std::span<const AnswerEnd> ends,
                             TokenUsage usage) {
  Json answer = head(/*streams=*/false);
  answer["choices"] = Json::array();
  for (std::size_t i = 0; i < choices.size(); ++i) {
    const std::vector<FunctionCall>& calls = ends[i].calls;
    Json one = {{"index", i}};
    if (chat_) {
      const bool has_text = calls.empty() || !trimmed(choices[i].text).empty();
      one["message"] = {{"role", "assistant"},
                        {"content", has_text ? Json(choices[i].text) : Json()},
                        {"refusal", nullptr}};
      if (!choices[i].reasoning.empty()) one["message"]["reasoning_content"] = choices[i].reasoning;
      if (!calls.empty()) one["message"]["tool_calls"] = calls_json(i, calls);
    } else {
      one["text"] = choices[i].text;
    }
    one["logprobs"] = log_probabilities(choices[i]);
    one["finish_reason"] = reason_name(ends[i]);
    answer["choices"].push_back(std::move(one));
  }
  answer["usage"] = usage_json(usage);
  return answer;
}

std::string CompletionAnswer::choice_event(Json choice, Json log_probabilities, Json reason) const {
  choice["logprobs"] = std::move(log_probabilities);
  choice["finish_reason"] = std::move(reason);
  Json answer = head(/*streams=*/true);
  answer["choices"] = Json::array({std::move(choice)});
  return data_event(answer);
}

std::string CompletionAnswer::begin(TokenUsage) { return ""; }

std::string CompletionAnswer::first_part(std::size_t index) {
  if (!chat_) return "";
  Json one = {{"index", index}};
  one["delta"] = {{"role", "assistant"}, {"content", ""}};
  return choice_event(std::move(one), nullptr, nullptr);
}

std::string CompletionAnswer::part(std::size_t index, const AnswerChoice& choice) {
  Json one = {{"index", index}};
  if (chat_) {
    one["delta"] = Json::object();
    if (!choice.reasoning.empty()) one["delta"]["reasoning_content"] = choice.reasoning;
    if (choice.reasoning.empty() || !choice.text.empty()) one["delta"]["content"] = choice.text;
  } else {
    one["text"] = choice.text;
  }
  return choice_event(std::move(one), log_probabilities(choice), nullptr);
}

std::string CompletionAnswer::last_part(std::size_t index, const AnswerEnd& end) {
  std::string events;
  if (!end.calls.empty()) {
    Json list = calls_json(index, end.calls);
    for (std::size_t i = 0; i < list.size(); ++i) list[i]["index"] = i;
    Json one = {{"index", index}};
    one["delta"] = {{"tool_calls", std::move(list)}};
    events = choice_event(std::move(one), nullptr, nullptr);
  }
  Json one = {{"index", index}};
  if (chat_) {
    one["delta"] = Json::object();
  } else {
    one["text"] = "";
  }
  return events + choice_event(std::move(one), nullptr, reason_name(end));
}

std::string CompletionAnswer::end(TokenUsage usage) {
  std::string events;
  if (request_.stream_usage) {
    Json answer = head(/*streams=*/true);
    answer["choices"] = Json::array();
    answer["usage"] = usage_json(usage);
    events = data_event(answer);
  }
  return events + "data: [DONE]\n\n";
}

std::string CompletionAnswer::failed(const RequestError& error) { return data_event(error.json()); }

}  // namespace piton
