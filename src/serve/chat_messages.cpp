#include "serve/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "serve/request_error.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kRoles = std::to_array<std::string_view>(
    {"system", "developer", "user", "assistant", "tool", "function"});

// A list of text parts as one text.
Json joined_parts(const Json& parts, const std::string& path) {
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    RequestFields part(parts[i], fmt::format("{}[{}]", path, i));
    const std::string type = part.text("type").value_or("");
    if (type != "text") part.fail("type", "\"text\" (the model reads text alone)");
    const std::optional<std::string> words = part.text("text");
    if (!words) part.fail("text", "a string");
    part.refuse_others();
    text += *words;
  }
  return text;
}

Json message_of(const Json& given, const std::string& path) {
  RequestFields fields(given, path);
  const std::string role = fields.text("role").value_or("");
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end())
    fields.fail("role", "system, developer, user, assistant, tool or function");
  Json message = given;
  message["role"] = role == "developer" ? "system" : role;
  const Json* content = fields.value("content");
  if (content == nullptr) {
    if (role != "assistant") fields.fail("content", "a string, or a list of text parts");
  } else if (content->is_array()) {
    message["content"] = joined_parts(*content, path + ".content");
  } else if (!content->is_string()) {
    fields.fail("content", "a string, or a list of text parts");
  }
  const Json* calls = fields.value("tool_calls");
  if (calls != nullptr) {
    if (!calls->is_array()) fields.fail("tool_calls", "a list of calls");
    for (std::size_t i = 0; i < calls->size(); ++i) {
      const std::string call_path = fmt::format("{}.tool_calls[{}]", path, i);
      RequestFields call((*calls)[i], call_path);
      const Json* function = call.value("function");
      if (function == nullptr) call.fail("function", "an object with name and arguments");
      RequestFields called(*function, call_path + ".function");
      if (!called.text("name")) called.fail("name", "a string");
    }
  }
  return message;
}

}  // namespace

ChatInput read_chat_input(RequestFields& fields) {
  ChatInput input;
  const Json* messages = fields.value("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty())
    fields.fail("messages", "a list of at least one message");
  input.messages = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    input.messages.push_back(message_of((*messages)[i], fmt::format("messages[{}]", i)));
  }
  const Json* tools = fields.value("tools");
  if (tools != nullptr) {
    if (!tools->is_array()) fields.fail("tools", "a list of tools");
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const std::string path = fmt::format("tools[{}]", i);
      RequestFields tool((*tools)[i], path);
      if (tool.text("type").value_or("") != "function") tool.fail("type", "\"function\"");
      const Json* function = tool.value("function");
      if (function == nullptr) tool.fail("function", "an object with a name");
      RequestFields described(*function, path + ".function");
      if (!described.text("name")) described.fail("name", "a string");
    }
  }
  const Json* choice = fields.value("tool_choice");
  const bool none = choice != nullptr && *choice == "none";
  if (choice != nullptr && !none && *choice != "auto")
    fields.fail("tool_choice", "\"auto\" or \"none\" (the model alone decides about calls)");
  if (tools != nullptr && !tools->empty() && !none) input.tools = *tools;
  return input;
}

}  // namespace piton
