#include "serve/chat/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "serve/http/request_error.h"
#include "text/chat/json_in_text.h"

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

// Arguments of a call as a value: clients send them as a text of JSON, as they get them, and
// templates write values. A text of no object stays as it is.
void read_arguments(Json& function) {
  const auto arguments = function.find("arguments");
  if (arguments == function.end() || !arguments->is_string()) return;
  Json value = json_in_text(arguments->get_ref<const std::string&>());
  if (value.is_object()) *arguments = std::move(value);
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
      read_arguments(message["tool_calls"][i]["function"]);
    }
  }
  return message;
}

Json call_schema(const std::string& name, const Json* parameters) {
  const Json arguments = parameters != nullptr ? *parameters : Json{{"type", "object"}};
  return {{"type", "object"},
          {"properties", {{"name", {{"const", name}}}, {"arguments", arguments}}},
          {"required", {"name", "arguments"}}};
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

Json read_variables(RequestFields& fields) {
  Json variables = Json::object();
  if (const Json* given = fields.value("chat_template_kwargs")) {
    if (!given->is_object())
      fields.fail("chat_template_kwargs", "an object, such as {\"enable_thinking\": false}");
    variables = *given;
  }
  if (const auto effort = fields.text("reasoning_effort")) variables["reasoning_effort"] = *effort;
  return variables;
}

}  // namespace

ChatRequest read_chat(RequestFields& fields) {
  ChatRequest request;
  const Json* messages = fields.value("messages");
  if (messages == nullptr || !messages->is_array() || messages->empty())
    fields.fail("messages", "a list of at least one message");
  request.input.messages = Json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    request.input.messages.push_back(message_of((*messages)[i], fmt::format("messages[{}]", i)));
  }
  Json calls = Json::array();  // a schema for each tool
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
      const std::optional<std::string> name = described.text("name");
      if (!name) described.fail("name", "a string");
      const Json* parameters = described.value("parameters");
      request.tools.push_back({*name, parameters != nullptr ? *parameters : Json()});
      calls.push_back(call_schema(*name, parameters));
    }
  }
  const Json* choice = fields.value("tool_choice");
  if (choice == nullptr || *choice == "auto") {
    // The model decides.
  } else if (*choice == "none") {
    request.tools.clear();
  } else if (*choice == "required") {
    if (request.tools.empty())
      fields.fail("tool_choice", "\"auto\" or \"none\", since there are no tools");
    request.call_schema = calls.size() == 1 ? calls[0] : Json{{"anyOf", calls}};
  } else {
    const std::string name = named_tool(*choice, fields);
    const auto found = std::ranges::find(request.tools, name, &CallableTool::name);
    if (found == request.tools.end()) fields.fail("tool_choice", "the name of one of the tools");
    request.call_schema = calls[static_cast<std::size_t>(found - request.tools.begin())];
  }
  if (!request.tools.empty()) request.input.tools = *tools;
  request.input.variables = read_variables(fields);
  return request;
}

}  // namespace piton
