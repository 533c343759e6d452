#include "serve/chat/chat_request.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "serve/http/request_error.h"
#include "text/chat/json_in_text.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

Json call_schema(const CallableTool& tool) {
  const Json arguments = tool.parameters.is_null() ? Json{{"type", "object"}} : tool.parameters;
  return {{"type", "object"},
          {"properties", {{"name", {{"const", tool.name}}}, {"arguments", arguments}}},
          {"required", {"name", "arguments"}}};
}

}  // namespace

void add_tool(ChatRequest& request, const std::string& name, const Json* parameters,
              Json description) {
  request.tools.push_back({name, parameters != nullptr ? *parameters : Json()});
  if (request.input.tools.is_null()) request.input.tools = Json::array();
  request.input.tools.push_back(std::move(description));
}

void choose_tools(ChatRequest& request, ToolChoice choice, const std::string& name,
                  const RequestFields& fields) {
  if (choice == ToolChoice::kNone) {
    request.tools.clear();
    request.input.tools = nullptr;
  } else if (choice == ToolChoice::kRequired) {
    if (request.tools.empty())
      fields.fail("tool_choice", "\"auto\" or \"none\", since there are no tools");
    Json schemas = Json::array();
    for (const CallableTool& tool : request.tools) schemas.push_back(call_schema(tool));
    request.call_schema = schemas.size() == 1 ? schemas[0] : Json{{"anyOf", schemas}};
  } else if (choice == ToolChoice::kNamed) {
    const auto found = std::ranges::find(request.tools, name, &CallableTool::name);
    if (found == request.tools.end()) fields.fail("tool_choice", "the name of one of the tools");
    request.call_schema = call_schema(*found);
  }
}

Json arguments_value(const Json& arguments) {
  if (!arguments.is_string()) return arguments;
  Json value = json_in_text(arguments.get_ref<const std::string&>());
  return value.is_object() ? value : arguments;
}

std::optional<std::string> text_of_parts(RequestFields& fields, const std::string& name,
                                         const std::vector<std::string>& types) {
  const Json* content = fields.value(name);
  if (content == nullptr) return std::nullopt;
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) fields.fail(name, "a string, or a list of text parts");
  std::string text;
  for (std::size_t i = 0; i < content->size(); ++i) {
    RequestFields part((*content)[i], fmt::format("{}[{}]", fields.path_of(name), i));
    const std::string type = part.text("type").value_or("");
    if (std::ranges::find(types, type) == types.end()) {
      part.fail("type",
                fmt::format("\"{}\" (the model reads text alone)", fmt::join(types, "\" or \"")));
    }
    const std::optional<std::string> words = part.text("text");
    if (!words) part.fail("text", "a string");
    part.ignore(
        {"annotations", "logprobs", "cache_control", "citations", "prompt_cache_breakpoint"});
    part.refuse_others();
    text += *words;
  }
  return text;
}

}  // namespace piton
