#include "serve/message_answer.h"

#include "text/chat/json_in_text.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

const char* stop_reason(const AnswerEnd& end) {
  if (end.reason == FinishReason::kLength) return "max_tokens";
  if (!end.calls.empty()) return "tool_use";
  return end.stop_word.empty() ? "end_turn" : "stop_sequence";
}

Json stop_word_json(const AnswerEnd& end) {
  return end.stop_word.empty() ? Json() : Json(end.stop_word);
}

// Here tokens from the cache are not part of the input.
Json message_usage(TokenUsage usage) {
  Json json = {{"input_tokens", usage.prompt - usage.reused},
               {"cache_creation_input_tokens", 0},
               {"cache_read_input_tokens", usage.reused},
               {"output_tokens", usage.written}};
  if (usage.reasoning) json["output_tokens_details"] = {{"thinking_tokens", *usage.reasoning}};
  return json;
}

Json text_block(const std::string& text) {
  return {{"type", "text"}, {"text", text}, {"citations", nullptr}};
}

Json thinking_block(const std::string& text) {
  return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
}

std::string block_event(const char* type, std::size_t index, Json fields) {
  Json json = {{"type", type}, {"index", index}};
  json.update(fields);
  return typed_event(json);
}

std::string start_event(std::size_t index, Json block) {
  return block_event("content_block_start", index, {{"content_block", std::move(block)}});
}

std::string delta_event(std::size_t index, Json delta) {
  return block_event("content_block_delta", index, {{"delta", std::move(delta)}});
}

std::string stop_event(std::size_t index) {
  return block_event("content_block_stop", index, Json::object());
}

}  // namespace

Json message_error_json(const RequestError& error) {
  const int status = error.status();
  const char* type = "invalid_request_error";
  if (status == 401) type = "authentication_error";
  if (status == 404) type = "not_found_error";
  if (status == 413) type = "request_too_large";
  if (status == 429) type = "rate_limit_error";
  if (status >= 500) type = "api_error";
  if (status == 503) type = "overloaded_error";
  if (status == 504) type = "timeout_error";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", error.what()}}}};
}

MessageAnswer::MessageAnswer(const TextRequest& request, const ServedModel& model,
                             std::uint64_t number)
    : request_(request), model_(model), number_(number) {}

Json MessageAnswer::message() const {
  return {{"id", fmt::format("msg_{:016x}", number_)},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_.name_of(request_.adapter)},
          {"content", Json::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

Json MessageAnswer::call_block(std::size_t index, Json input, const FunctionCall& call) const {
  return {{"type", "tool_use"},
          {"id", fmt::format("toolu_{:016x}_{}", number_, index)},
          {"name", call.name},
          {"input", std::move(input)}};
}

Json MessageAnswer::whole(std::span<const AnswerChoice> choices, std::span<const AnswerEnd> ends,
                          TokenUsage usage) {
  const AnswerChoice& choice = choices[0];
  const AnswerEnd& end = ends[0];
  Json json = message();
  Json& content = json["content"];
  if (!choice.reasoning.empty()) content.push_back(thinking_block(choice.reasoning));
  if (has_text(choice, end)) content.push_back(text_block(choice.text));
  for (const FunctionCall& one : end.calls)
    content.push_back(call_block(content.size(), json_in_text(one.arguments), one));
  json["stop_reason"] = stop_reason(end);
  json["stop_sequence"] = stop_word_json(end);
  json["usage"] = message_usage(usage);
  return json;
}

std::string MessageAnswer::begin(TokenUsage usage) {
  Json json = message();
  json["usage"] = message_usage({.prompt = usage.prompt});
  return typed_event({{"type", "message_start"}, {"message", std::move(json)}});
}

std::string MessageAnswer::open_reasoning(std::size_t index) {
  return start_event(index, thinking_block(""));
}

std::string MessageAnswer::reasoning_part(std::size_t index, const std::string& text) {
  return delta_event(index, {{"type", "thinking_delta"}, {"thinking", text}});
}

std::string MessageAnswer::close_reasoning(std::size_t index, const std::string&) {
  return stop_event(index);
}

std::string MessageAnswer::open_text(std::size_t index) {
  return start_event(index, text_block(""));
}

std::string MessageAnswer::text_part(std::size_t index, const AnswerChoice& choice) {
  if (choice.text.empty()) return "";
  return delta_event(index, {{"type", "text_delta"}, {"text", choice.text}});
}

std::string MessageAnswer::close_text(std::size_t index, const std::string&, FinishReason) {
  return stop_event(index);
}

std::string MessageAnswer::call(std::size_t index, const FunctionCall& call) {
  return start_event(index, call_block(index, Json::object(), call)) +
         delta_event(index, {{"type", "input_json_delta"}, {"partial_json", call.arguments}}) +
         stop_event(index);
}

std::string MessageAnswer::end(TokenUsage usage) {
  const Json delta = {{"stop_reason", stop_reason(ended())},
                      {"stop_sequence", stop_word_json(ended())}};
  return typed_event(
             {{"type", "message_delta"}, {"delta", delta}, {"usage", message_usage(usage)}}) +
         typed_event({{"type", "message_stop"}});
}

std::string MessageAnswer::failed(const RequestError& error) {
  return typed_event(message_error_json(error));
}

}  // namespace piton
