#include "serve/chat/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "serve/http/request_error.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kRoles = std::to_array<std::string_view>(
    {"system", "developer", "user", "assistant", "tool", "function"});

Json message_of(const Json& given, const std::string& path) {
  RequestFields fields(given, path);
  const std::string role = fields.text("role").value_or("");
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end())
    fields.fail("role", "system, developer, user, assistant, tool or function");
  Json message = given;
  message["role"] = role == "developer" ? "system" : role;
  if (const auto content = text_of_parts(fields, "content", {"text"})) {
    message["content"] = *content;
  } else if (role != "assistant") {
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
      Json& written = message["tool_calls"][i]["function"];
      if (written.contains("arguments"))
        written["arguments"] = arguments_value(written["arguments"]);
    }
  }
  return message;
}

// The name in {"type": "function", "function": {"name": N}}.
std::string named_tool(const Json& choice, const RequestFields& fields) {
  const auto function = choice.is_object() ? choice.find("function") : choice.end();
  if (!choice.is_object() || choice.value("type", Json()) != "function" ||
      function == choice.end() || !function->is_object() || !function->contains("name") ||
      !(*function)["name"].is_string())
    fields.fail("tool_choice",
                "\"auto\", \"none\", \"required\", or {\"type\": \"function\", \"function\": "
                "{\"name\": NAME}}");
  return (*function)["name"].get<std::string>();
}

void read_continuation(RequestFields& fields, ChatRequest& request) {
  request.continues = fields.flag("continue_final_message").value_or(false);
  const bool adds = fields.flag("add_generation_prompt").value_or(!request.continues);
  if (adds == request.continues)
    fields.fail("add_generation_prompt", request.continues
                                             ? "false, since continue_final_message is true"
                                             : "true, or \"continue_final_message\": true");
  if (!request.continues) return;
  const Json& last = request.input.messages.back();
  const bool is_begun = last["role"] == "assistant" && last.value("content", Json()).is_string() &&
                        !last.contains("tool_calls");
  if (!is_begun)
    fields.fail("continue_final_message",
                "false, unless the last message is a text of the assistant");
}

}  // namespace

Json read_template_variables(RequestFields& fields) {
  const Json* given = fields.value("chat_template_kwargs");
  if (given == nullptr) return Json::object();
  if (!given->is_object())
    fields.fail("chat_template_kwargs", "an object, such as {\"enable_thinking\": false}");
  return *given;
}

ChatRequest read_chat(RequestFields& fields) {
  ChatRequest request;
  const Json* messages = fields.value("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty())
    fields.fail("messages", "a list of at least one message");
  request.input.messages = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    request.input.messages.push_back(message_of((*messages)[i], fmt::format("messages[{}]", i)));
  }
  if (const Json* tools = fields.value("tools")) {
    if (!tools->is_array()) fields.fail("tools", "a list of tools");
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const std::string path = fmt::format("tools[{}]", i);
      RequestFields tool((*tools)[i], path);
      if (tool.text("type").value_or("") != "function") tool.fail("type", "\"function\"");
      const Json* function = tool.value("function");
      if (function == nullptr) tool.fail("function", "an object with a name");
      RequestFields described(*function, path + ".function");
      const std::optional<std::string> name = described.text("name");
      if (!name) described.fail("name", "a string");
      add_tool(request, *name, described.value("parameters"), (*tools)[i]);
    }
  }
  const Json* choice = fields.value("tool_choice");
  if (choice == nullptr || *choice == "auto") {
    // The model decides.
  } else if (*choice == "none") {
    choose_tools(request, ToolChoice::kNone, "", fields);
  } else if (*choice == "required") {
    choose_tools(request, ToolChoice::kRequired, "", fields);
  } else {
    choose_tools(request, ToolChoice::kNamed, named_tool(*choice, fields), fields);
  }
  read_continuation(fields, request);
  request.input.variables = read_template_variables(fields);
  if (const auto effort = fields.text("reasoning_effort"))
    request.input.variables["reasoning_effort"] = *effort;
  return request;
}

}  // namespace piton
