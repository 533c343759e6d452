#include "data/instruct/tool_text.h"

#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/nesting.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

Json read(const std::string& text, const char* what) {
  check_json_depth(text, what);
  Json value = read_json_or_discarded<Json>(text);
  if (value.is_discarded()) throw Error(Fault::kData, "{} are not JSON", what);
  return value;
}

std::string text_of(const Json& object, const char* key) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return "";
  return at->is_string() ? at->get<std::string>() : python_json(*at);
}

// One line for each parameter of a tool.
std::string parameter_lines(const Json& parameters) {
  std::string lines;
  if (!parameters.is_object()) throw Error(Fault::kData, "the parameters of a tool are no object");
  const auto properties = parameters.find("properties");
  if (properties == parameters.end() || !properties->is_object()) return lines;
  const Json required = parameters.value("required", Json::array());
  for (const auto& [name, parameter] : properties->items()) {
    if (!parameter.is_object()) throw Error(Fault::kData, "a parameter of a tool is no object");
    std::string rest;
    if (const auto at = parameter.find("enum"); at != parameter.end() && !at->empty()) {
      std::vector<std::string> values;
      for (const Json& value : *at) {
        values.push_back(value.is_string() ? value.get<std::string>() : python_json(value));
      }
      rest += fmt::format(", should be one of [{}]", fmt::join(values, ", "));
    }
    if (const auto at = parameter.find("items"); at != parameter.end() && at->is_object()) {
      rest += ", where each item should be " + text_of(*at, "type");
    }
    const bool needed = std::find(required.begin(), required.end(), name) != required.end();
    lines += fmt::format("  - {} ({}{}): {}{}\n", name, text_of(parameter, "type"),
                         needed ? ", required" : "", text_of(parameter, "description"), rest);
  }
  return lines;
}

std::string default_descriptions(const Json& tools) {
  std::string text;
  std::vector<std::string> names;
  for (const Json& entry : tools) {
    const auto inner = entry.find("function");
    const Json& tool = inner != entry.end() && inner->is_object() ? *inner : entry;
    if (!tool.contains("name")) throw Error(Fault::kData, "a tool has no name");
    names.push_back(text_of(tool, "name"));
    text += fmt::format("> Tool Name: {}\nTool Description: {}\nTool Args:\n{}\n", names.back(),
                        text_of(tool, "description"),
                        parameter_lines(tool.value("parameters", Json::object())));
  }
  return fmt::format(
      "You have access to the following tools:\n{}Use the following format if using a tool:\n"
      "```\nAction: tool name (one of [{}]).\nAction Input: the input to the tool, in a JSON "
      "format representing the kwargs (e.g. ```{{\"input\": \"hello world\", \"num_beams\": 5}}```)"
      ".\n```\n",
      text, fmt::join(names, ", "));
}

std::string qwen_descriptions(const Json& tools) {
  std::string text;
  for (const Json& tool : tools) {
    text += "\n" + python_json(text_of(tool, "type") == "function"
                                   ? tool
                                   : Json{{"type", "function"}, {"function", tool}});
  }
  return "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
         "You are provided with function signatures within <tools></tools> XML tags:\n<tools>" +
         text +
         "\n</tools>\n\nFor each function call, return a json object with function name and "
         "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": "
         "<function-name>, \"arguments\": <args-json-object>}\n</tool_call>";
}

}  // namespace

std::string tool_descriptions(ToolFormat format, const std::string& tools) {
  if (tools.empty()) return "";
  const Json list = read(tools, "the tools");
  const auto is_object = [](const Json& tool) { return tool.is_object(); };
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), is_object)) {
    throw Error(Fault::kData, "the tools are not a list of objects");
  }
  if (list.empty()) return "";
  switch (format) {
    case ToolFormat::kDefault:
      return default_descriptions(list);
    case ToolFormat::kQwen:
      return qwen_descriptions(list);
    case ToolFormat::kGlm4:
      throw Error(Fault::kData, "the template cannot write tools; choose another --prompt-type");
  }
  PITON_ASSERT(false, "tool format {}", static_cast<int>(format));
  return "";
}

ToolCalls tool_calls(const std::string& content) {
  constexpr std::string_view kOpen = "<think>", kClose = "</think>";
  ToolCalls result;
  std::string rest = content;
  const std::size_t open = content.find(kOpen), close = content.rfind(kClose);
  if (open != content.npos && close != content.npos && close > open) {
    const std::size_t end = close + kClose.size();
    result.thought = content.substr(open, end - open);
    rest.erase(open, end - open);
  }
  const Json value = read(rest, "the calls of tools");
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& call : list) {
    if (!call.is_object() || !call.contains("name") || !call["name"].is_string() ||
        !call.contains("arguments")) {
      throw Error(Fault::kData, "a tool call is no object with name and arguments");
    }
    // OpenAI's form has the arguments as a text of JSON.
    const Json& arguments = call["arguments"];
    result.calls.push_back(
        {call["name"].get<std::string>(),
         python_json(arguments.is_string() ? read(arguments.get<std::string>(), "the arguments")
                                           : arguments)});
  }
  if (result.calls.empty()) throw Error(Fault::kData, "a list of tool calls is empty");
  return result;
}

std::string qwen_calls(const ToolCalls& calls) {
  std::string text = calls.thought;
  for (std::size_t i = 0; i < calls.calls.size(); ++i) {
    text +=
        fmt::format("{}<tool_call>\n{{\"name\": {}, \"arguments\": {}}}\n</tool_call>",
                    i == 0 ? "" : "\n", python_json(calls.calls[i].name), calls.calls[i].arguments);
  }
  return text;
}

std::string python_json(const Json& value) {
  std::string text;
  if (value.is_object()) {
    text = "{";
    for (const auto& [key, member] : value.items()) {
      text += (text.size() > 1 ? ", " : "") + Json(key).dump() + ": " + python_json(member);
    }
    return text + "}";
  }
  if (value.is_array()) {
    text = "[";
    for (const Json& member : value) text += (text.size() > 1 ? ", " : "") + python_json(member);
    return text + "]";
  }
  return value.dump();
}

}  // namespace piton
