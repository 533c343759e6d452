#include "serve/conversation_request.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "serve/chat/chat_messages.h"
#include "serve/chat/continued_chat.h"
#include "serve/chat/message_blocks.h"
#include "serve/chat/response_items.h"
#include "serve/http/json_line.h"
#include "serve/http/request_error.h"
#include "text/chat/chat_tokens.h"
#include "text/chat/turn_ends.h"
#include "text/chat/written_tools.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// A variable that the template does not read would be ignored silently.
void check_variables(const ChatRequest& chat, const ChatTemplate& chat_template) {
  const auto unread = chat_template.unread_variable(chat.input.variables);
  if (!unread) return;
  const bool is_effort = *unread == "reasoning_effort";
  const std::string field = is_effort ? chat.effort_field : "chat_template_kwargs." + *unread;
  throw RequestError(400, field,
                     json_line(field) + ": the chat template does not read it; leave it out");
}

// Reasoning on or off, by the variable that templates of models have for it that can do both.
void switch_reasoning(ChatRequest& chat, const ChatTemplate& chat_template) {
  if (!chat.reasons) return;
  const Json variable = {{"enable_thinking", *chat.reasons}};
  if (!chat_template.unread_variable(variable)) {
    chat.input.variables.update(variable);
    return;
  }
  const bool can_reason = reasoning_after("", chat_template.source()) != ReasoningPlace::kNone;
  if (can_reason == *chat.reasons) return;
  throw RequestError(400, "thinking",
                     can_reason ? "thinking: the chat template has no variable enable_thinking, "
                                  "which would switch reasoning off; leave it out"
                                : "thinking: the model's chat template has no reasoning; leave it "
                                  "out, or say {\"type\": \"disabled\"}");
}

// Without them the model would answer as if there were no tools, or no calls before.
void check_tools(const ChatTemplate& chat_template, const ChatInput& input,
                 const std::string& field) {
  const auto left_out = left_out_of_text(chat_template, input);
  if (!left_out) return;
  const std::string where = *left_out == "tools" ? "tools" : field;
  throw RequestError(400, where,
                     fmt::format("{}: the model's chat template does not write {}; leave them out, "
                                 "or start the server with --chat-template",
                                 where, *left_out));
}

// `field`: that has the conversation.
void set_conversation(TextRequest& request, ChatRequest chat, const ServedModel& model,
                      const RequestLimits& limits, const std::string& field) {
  const ChatInput& input = chat.input;
  request.tools = std::move(chat.tools);
  if (!chat.call_schema.is_null()) {
    if (request.grammar)
      throw RequestError(400, "tool_choice", "tool_choice: a request has at most one constraint");
    set_constraint(request, {ConstraintKind::kJsonSchema, chat.call_schema.dump()}, "tools");
  }
  const ChatTemplate* chat_template = model.chat_template(!input.tools.is_null());
  if (chat_template == nullptr) {
    throw RequestError(400, field,
                       field +
                           ": the model has no chat template; start the server with "
                           "--chat-template, or use /v1/completions");
  }
  check_variables(chat, *chat_template);
  switch_reasoning(chat, *chat_template);
  try {
    const RenderedChat prompt = chat.continues
                                    ? render_continued(*chat_template, input)
                                    : chat_template->render(input, /*add_generation_prompt=*/true);
    check_tools(*chat_template, input, field);
    request.prompts = {encode_chat(model.tokenizer(), prompt).ids};
    const ReasoningPlace place = reasoning_after(prompt.text, chat_template->source());
    // A constraint begins with the first token, and after the beginning of an answer there is no
    // reasoning.
    const bool may_reason = !chat.continues || place == ReasoningPlace::kInside;
    if (limits.finds_reasoning && !request.grammar && may_reason) request.reasoning = place;
  } catch (const Error& error) {
    throw RequestError(400, field, fmt::format("{}: {}", field, error.what()));
  }
  for (const std::int32_t id : turn_ends(*chat_template, model.tokenizer())) {
    if (std::find(request.ends.begin(), request.ends.end(), id) == request.ends.end())
      request.ends.push_back(id);
  }
  check_prompts(request, model, limits, field);
}

// The format of an answer: {"type": "json_schema", "schema": S}, and where it `allows_any` other
// types too.
void read_format(RequestFields& format, TextRequest& request, bool allows_any) {
  const std::string type = format.text("type").value_or("");
  if (type == "json_schema") {
    const Json* schema = format.value("schema");
    if (schema == nullptr) format.fail("schema", "a JSON schema");
    set_constraint(request, {ConstraintKind::kJsonSchema, schema->dump()},
                   format.path_of("schema"));
  } else if (allows_any && type == "json_object") {
    set_constraint(request, {ConstraintKind::kJsonObject, ""}, format.path_of("type"));
  } else if (!allows_any || type != "text") {
    format.fail("type", allows_any ? "text, json_object or json_schema" : "json_schema");
  }
}

void read_response_text(RequestFields& fields, TextRequest& request) {
  request.settings["text"] = {{"format", {{"type", "text"}}}};
  const Json* text = fields.value("text");
  if (text == nullptr) return;
  RequestFields inner(*text, "text");
  if (inner.text("verbosity").value_or("medium") != "medium")
    inner.fail("verbosity", "\"medium\" (the model has no other one)");
  if (const Json* format = inner.value("format")) {
    RequestFields described(*format, "text.format");
    read_format(described, request, /*allows_any=*/true);
    described.ignore({"name", "description", "strict"});
    described.refuse_others();
    request.settings["text"]["format"] = *format;
  }
  inner.refuse_others();
}

// Fields of responses that would change the answer and cannot be honored: allowed with the values
// that change nothing.
void refuse_kept_state(RequestFields& fields) {
  if (fields.flag("store").value_or(false)) fields.fail("store", "false (answers are not stored)");
  if (fields.flag("background").value_or(false))
    fields.fail("background", "false (answers are not stored)");
  for (const char* name : {"previous_response_id", "conversation"}) {
    if (fields.value(name) != nullptr)
      fields.fail(name, "nothing (answers are not stored; send the items before in input)");
  }
  if (fields.value("prompt") != nullptr)
    fields.fail("prompt", "nothing (prompts are not stored; send it in input)");
  if (fields.text("truncation").value_or("disabled") != "disabled")
    fields.fail("truncation", "\"disabled\"");
}

// Likelihoods of tokens, and how a stream is sent.
void read_response_extent(RequestFields& fields, TextRequest& request) {
  bool with_likelihoods = false;
  if (const Json* include = fields.value("include")) {
    const std::string wanted =
        "a list of \"message.output_text.logprobs\" and \"reasoning.encrypted_content\"";
    if (!include->is_array()) fields.fail("include", wanted);
    for (const Json& one : *include) {
      with_likelihoods = with_likelihoods || one == "message.output_text.logprobs";
      // Reasoning is in the answer as it is.
      if (one != "message.output_text.logprobs" && one != "reasoning.encrypted_content")
        fields.fail("include", wanted);
    }
  }
  const auto likeliest = fields.integer("top_logprobs", 0, kMostLikeliest);
  if (with_likelihoods || likeliest.value_or(0) > 0) {
    request.likeliest = likeliest.value_or(0);
    request.sampling.log_probabilities = request.likeliest;
  }
  if (const Json* options = fields.value("stream_options")) {
    RequestFields inner(*options, "stream_options");
    inner.flag("include_obfuscation");
    inner.refuse_others();
  }
}

// What the answer repeats of its request.
void set_settings(RequestFields& fields, const ChatRequest& chat, TextRequest& request) {
  const auto given = [&](const char* name, Json otherwise) {
    const Json* value = fields.value(name);
    return value != nullptr ? *value : std::move(otherwise);
  };
  Json tools = given("tools", Json::array());
  for (Json& tool : tools) {
    for (const char* name : {"parameters", "strict"}) {
      if (!tool.contains(name)) tool[name] = nullptr;
    }
  }
  const Json effort = chat.input.variables.value("reasoning_effort", Json());
  request.settings.update({{"background", false},
                           {"instructions", given("instructions", nullptr)},
                           {"max_output_tokens", given("max_output_tokens", nullptr)},
                           {"metadata", given("metadata", Json::object())},
                           {"parallel_tool_calls", request.several_calls},
                           {"previous_response_id", nullptr},
                           {"reasoning", {{"effort", effort}, {"summary", nullptr}}},
                           {"store", false},
                           {"temperature", request.sampling.temperature},
                           {"tool_choice", given("tool_choice", "auto")},
                           {"tools", std::move(tools)},
                           {"top_logprobs", request.likeliest.value_or(0)},
                           {"top_p", request.sampling.top_p},
                           {"truncation", "disabled"}});
}

}  // namespace

TextRequest read_chat_request(const Json& body, const ServedModel& model,
                              const RequestLimits& limits) {
  RequestFields fields(body, "");
  TextRequest request{.kind = AnswerKind::kChat};
  read_shared_fields(fields, request, model);
  read_completion_fields(fields, request);
  auto length = fields.integer("max_completion_tokens", 1, limits.new_tokens);
  const auto old_name = fields.integer("max_tokens", 1, limits.new_tokens);
  set_length(request, length ? length : old_name, limits);
  const bool with_logprobs = fields.flag("logprobs").value_or(false);
  const auto likeliest = fields.integer("top_logprobs", 0, kMostLikeliest);
  if (likeliest && !with_logprobs)
    fields.fail("top_logprobs", "nothing, since logprobs is not true");
  if (with_logprobs) {
    request.likeliest = likeliest.value_or(0);
    request.sampling.log_probabilities = request.likeliest;
  }
  request.several_calls = fields.flag("parallel_tool_calls").value_or(true);
  ChatRequest chat = read_chat(fields);
  fields.refuse_others();
  set_conversation(request, std::move(chat), model, limits, "messages");
  return request;
}

TextRequest read_response_request(const Json& body, const ServedModel& model,
                                  const RequestLimits& limits) {
  RequestFields fields(body, "");
  TextRequest request{.kind = AnswerKind::kResponse};
  read_shared_fields(fields, request, model);
  set_length(request, fields.integer("max_output_tokens", 1, limits.new_tokens), limits);
  refuse_kept_state(fields);
  read_response_extent(fields, request);
  read_response_text(fields, request);
  request.several_calls = fields.flag("parallel_tool_calls").value_or(true);
  if (const Json* metadata = fields.value("metadata")) {
    if (!metadata->is_object() || !std::ranges::all_of(*metadata, &Json::is_string))
      fields.fail("metadata", "an object of strings");
  }
  // Tools of the service itself are not there, so that none of their calls is counted.
  fields.ignore({"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
                 "prompt_cache_options", "max_tool_calls"});
  ChatRequest chat = read_response_input(fields);
  set_settings(fields, chat, request);
  fields.refuse_others();
  set_conversation(request, std::move(chat), model, limits, "input");
  return request;
}

TextRequest read_message_request(const Json& body, const ServedModel& model,
                                 const RequestLimits& limits) {
  RequestFields fields(body, "");
  TextRequest request{.kind = AnswerKind::kMessage};
  read_shared_fields(fields, request, model, "stop_sequences");
  const auto length = fields.integer("max_tokens", 1, limits.new_tokens);
  if (!length)
    fields.fail("max_tokens", fmt::format("a whole number from 1 to {}", limits.new_tokens));
  set_length(request, length, limits);
  request.several_calls = !only_one_call(fields);
  ChatRequest chat = read_message_blocks(fields);
  if (const Json* config = fields.value("output_config")) {
    RequestFields inner(*config, "output_config");
    if (const auto effort = inner.text("effort"))
      chat.input.variables["reasoning_effort"] = *effort;
    chat.effort_field = "output_config.effort";
    if (const Json* format = inner.value("format")) {
      RequestFields described(*format, "output_config.format");
      read_format(described, request, /*allows_any=*/false);
      described.refuse_others();
    }
    inner.refuse_others();
  }
  fields.ignore({"cache_control"});
  fields.refuse_others();
  set_conversation(request, std::move(chat), model, limits, "messages");
  return request;
}

std::vector<std::int32_t> read_message_prompt(const Json& body, const ServedModel& model) {
  RequestFields fields(body, "");
  TextRequest request{.kind = AnswerKind::kMessage};
  request.adapter = named_adapter(fields.text("model"), model);
  ChatRequest chat = read_message_blocks(fields);
  fields.ignore({"cache_control", "output_config"});
  fields.refuse_others();
  // A prompt that is only counted may fill the model.
  request.generates = false;
  set_conversation(request, std::move(chat), model, {}, "messages");
  return std::move(request.prompts.front());
}

}  // namespace piton
