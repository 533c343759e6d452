#include "serve/response_answer.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kReasoningId = "rs";
constexpr const char* kMessageId = "msg";
constexpr const char* kCallId = "fc";

Json text_content(const std::string& text, Json likelihoods) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", std::move(likelihoods)}};
}

// Events are made, and numbered, in the order of the list.
std::string joined(std::initializer_list<std::string> events) {
  std::string all;
  for (const std::string& one : events) all += one;
  return all;
}

Json reasoning_content(const std::string& text) {
  return {{"type", "reasoning_text"}, {"text", text}};
}

}  // namespace

ResponseAnswer::ResponseAnswer(const TextRequest& request, const ServedModel& model,
                               std::uint64_t number)
    : request_(request), model_(model), number_(number) {}

std::string ResponseAnswer::item_id(const char* kind, std::size_t index) const {
  return fmt::format("{}_{:016x}_{}", kind, number_, index);
}

Json ResponseAnswer::reasoning_item(std::size_t index, const std::string& text) const {
  return {{"id", item_id(kReasoningId, index)},
          {"type", "reasoning"},
          {"summary", Json::array()},
          {"content", Json::array({reasoning_content(text)})},
          {"status", "completed"}};
}

Json ResponseAnswer::message_item(std::size_t index, const std::string& text, Json likelihoods,
                                  FinishReason reason) const {
  return {{"id", item_id(kMessageId, index)},
          {"type", "message"},
          {"role", "assistant"},
          {"status", reason == FinishReason::kLength ? "incomplete" : "completed"},
          {"content", Json::array({text_content(text, std::move(likelihoods))})}};
}

Json ResponseAnswer::call_item(std::size_t index, const FunctionCall& call) const {
  return {{"id", item_id(kCallId, index)},     {"type", "function_call"},
          {"call_id", item_id("call", index)}, {"name", call.name},
          {"arguments", call.arguments},       {"status", "completed"}};
}

Json ResponseAnswer::response(const char* status) const {
  Json json = {{"id", fmt::format("resp_{:016x}", number_)},
               {"object", "response"},
               {"created_at", created_},
               {"status", status},
               {"model", model_.name_of(request_.adapter)},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"output", output_},
               {"usage", nullptr}};
  for (const auto& [name, value] : request_.settings.items()) json[name] = value;
  return json;
}

Json ResponseAnswer::ended_response(FinishReason reason, TokenUsage usage) const {
  const bool is_cut = reason == FinishReason::kLength;
  Json json = response(is_cut ? "incomplete" : "completed");
  if (is_cut) json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  json["usage"] = {
      {"input_tokens", usage.prompt},
      {"input_tokens_details", {{"cached_tokens", usage.reused}, {"cache_write_tokens", 0}}},
      {"output_tokens", usage.written},
      {"output_tokens_details", {{"reasoning_tokens", usage.reasoning.value_or(0)}}},
      {"total_tokens", usage.prompt + usage.written}};
  return json;
}

Json ResponseAnswer::whole(std::span<const AnswerChoice> choices, std::span<const AnswerEnd> ends,
                           TokenUsage usage) {
  const AnswerChoice& choice = choices[0];
  const AnswerEnd& end = ends[0];
  if (!choice.reasoning.empty())
    output_.push_back(reasoning_item(output_.size(), choice.reasoning));
  if (has_text(choice, end)) {
    Json likelihoods = Json::array();
    if (request_.likeliest)
      likelihoods =
          likelihoods_json(choice.tokens.subspan(choice.reasoning_tokens), model_.tokenizer());
    output_.push_back(
        message_item(output_.size(), choice.text, std::move(likelihoods), end.reason));
  }
  for (const FunctionCall& one : end.calls) output_.push_back(call_item(output_.size(), one));
  return ended_response(end.reason, usage);
}

std::string ResponseAnswer::event(const char* type, Json fields) {
  Json json = {{"type", type}, {"sequence_number", events_++}};
  json.update(fields);
  return typed_event(json);
}

std::string ResponseAnswer::item_event(const char* type, std::size_t index, const char* kind,
                                       Json fields) {
  fields["output_index"] = index;
  if (*kind != 0) fields["item_id"] = item_id(kind, index);
  return event(type, std::move(fields));
}

std::string ResponseAnswer::part_event(const char* type, std::size_t index, const char* kind,
                                       Json part) {
  return item_event(type, index, kind, {{"content_index", 0}, {"part", std::move(part)}});
}

std::string ResponseAnswer::begin(TokenUsage) {
  const Json begun = response("in_progress");
  return joined({event("response.created", {{"response", begun}}),
                 event("response.in_progress", {{"response", begun}})});
}

std::string ResponseAnswer::open_reasoning(std::size_t index) {
  const Json item = {{"id", item_id(kReasoningId, index)},
                     {"type", "reasoning"},
                     {"summary", Json::array()},
                     {"content", Json::array()},
                     {"status", "in_progress"}};
  return joined(
      {item_event("response.output_item.added", index, "", {{"item", item}}),
       part_event("response.content_part.added", index, kReasoningId, reasoning_content(""))});
}

std::string ResponseAnswer::reasoning_part(std::size_t index, const std::string& text) {
  return item_event("response.reasoning_text.delta", index, kReasoningId,
                    {{"content_index", 0}, {"delta", text}});
}

std::string ResponseAnswer::close_reasoning(std::size_t index, const std::string& whole) {
  output_.push_back(reasoning_item(index, whole));
  return joined(
      {item_event("response.reasoning_text.done", index, kReasoningId,
                  {{"content_index", 0}, {"text", whole}}),
       part_event("response.content_part.done", index, kReasoningId, reasoning_content(whole)),
       item_event("response.output_item.done", index, "", {{"item", output_.back()}})});
}

std::string ResponseAnswer::open_text(std::size_t index) {
  const Json item = {{"id", item_id(kMessageId, index)},
                     {"type", "message"},
                     {"role", "assistant"},
                     {"status", "in_progress"},
                     {"content", Json::array()}};
  return joined({item_event("response.output_item.added", index, "", {{"item", item}}),
                 part_event("response.content_part.added", index, kMessageId,
                            text_content("", Json::array()))});
}

std::string ResponseAnswer::text_part(std::size_t index, const AnswerChoice& choice) {
  Json likelihoods = Json::array();
  if (request_.likeliest) likelihoods = likelihoods_json(choice.tokens, model_.tokenizer());
  likelihoods_.insert(likelihoods_.end(), likelihoods.begin(), likelihoods.end());
  return item_event(
      "response.output_text.delta", index, kMessageId,
      {{"content_index", 0}, {"delta", choice.text}, {"logprobs", std::move(likelihoods)}});
}

std::string ResponseAnswer::close_text(std::size_t index, const std::string& whole,
                                       FinishReason reason) {
  output_.push_back(message_item(index, whole, likelihoods_, reason));
  return joined({item_event("response.output_text.done", index, kMessageId,
                            {{"content_index", 0}, {"text", whole}, {"logprobs", likelihoods_}}),
                 part_event("response.content_part.done", index, kMessageId,
                            text_content(whole, likelihoods_)),
                 item_event("response.output_item.done", index, "", {{"item", output_.back()}})});
}

std::string ResponseAnswer::call(std::size_t index, const FunctionCall& call) {
  output_.push_back(call_item(index, call));
  Json begun = output_.back();
  begun["arguments"] = "";
  begun["status"] = "in_progress";
  return joined({item_event("response.output_item.added", index, "", {{"item", std::move(begun)}}),
                 item_event("response.function_call_arguments.delta", index, kCallId,
                            {{"delta", call.arguments}}),
                 item_event("response.function_call_arguments.done", index, kCallId,
                            {{"name", call.name}, {"arguments", call.arguments}}),
                 item_event("response.output_item.done", index, "", {{"item", output_.back()}})});
}

std::string ResponseAnswer::end(TokenUsage usage) {
  const Json ended_json = ended_response(ended().reason, usage);
  const bool is_cut = ended().reason == FinishReason::kLength;
  return event(is_cut ? "response.incomplete" : "response.completed", {{"response", ended_json}});
}

std::string ResponseAnswer::failed(const RequestError& error) {
  Json json = response("failed");
  json["error"] = {{"code", "server_error"}, {"message", error.what()}};
  return event("response.failed", {{"response", std::move(json)}});
}

}  // namespace piton
