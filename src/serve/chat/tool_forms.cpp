#include "serve/chat/tool_forms.h"

#include <algorithm>
#include <optional>

#include "base/trimmed.h"
#include "text/chat/json_in_text.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;
using Calls = std::vector<FunctionCall>;
using Tools = std::vector<CallableTool>;

constexpr auto kMarks = std::to_array<std::string_view>({"[TOOL_CALLS]", "<|python_tag|>"});

const CallableTool* tool_named(std::string_view name, const Tools& tools) {
  const auto found =
      std::ranges::find_if(tools, [&](const CallableTool& one) { return one.name == name; });
  return found != tools.end() ? &*found : nullptr;
}

// The object or the list that `text` is; null if it is none.
Json read(std::string_view text) {
  if (!text.starts_with('{') && !text.starts_with('[')) return nullptr;
  return json_in_text(text);
}

std::optional<FunctionCall> call_of(const Json& json, const Tools& tools) {
  if (!json.is_object()) return std::nullopt;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return std::nullopt;
  if (tool_named(name->get_ref<const std::string&>(), tools) == nullptr) return std::nullopt;
  for (const char* key : {"arguments", "parameters"}) {
    const auto arguments = json.find(key);
    if (arguments == json.end()) continue;
    if (arguments->is_object()) return FunctionCall{name->get<std::string>(), arguments->dump()};
    // Some models write the arguments as a text.
    if (arguments->is_string() && read(arguments->get<std::string>()).is_object())
      return FunctionCall{name->get<std::string>(), arguments->get<std::string>()};
    return std::nullopt;
  }
  return std::nullopt;
}

// The calls of a JSON value: an object, or a list of them. None if one is no call.
Calls calls_of(const Json& json, const Tools& tools) {
  Calls calls;
  const auto add = [&](const Json& one) {
    std::optional<FunctionCall> call = call_of(one, tools);
    if (call) calls.push_back(std::move(*call));
    return call.has_value();
  };
  if (json.is_object()) {
    add(json);
  } else if (json.is_array()) {
    for (const Json& one : json) {
      if (!add(one)) return {};
    }
  }
  return calls;
}

// What is before `word`, which is removed with it; nullopt if the word is not in the text.
std::optional<std::string_view> take_until(std::string_view word, std::string_view& text) {
  const std::size_t at = text.find(word);
  if (at == text.npos) return std::nullopt;
  const std::string_view before = text.substr(0, at);
  text.remove_prefix(at + word.size());
  return before;
}

// Whether the schema of a parameter allows nothing but texts.
bool is_text(const Json& schema) {
  if (!schema.is_object()) return false;
  const auto type = schema.find("type");
  if (type != schema.end()) return *type == "string";
  const auto values = schema.find("enum");
  return values != schema.end() && values->is_array() &&
         std::ranges::all_of(*values, [](const Json& one) { return one.is_string(); });
}

// The value that `text` is for parameter `name`.
Json value_of(const CallableTool& tool, const std::string& name, std::string_view text) {
  const auto properties =
      tool.parameters.is_object() ? tool.parameters.find("properties") : tool.parameters.end();
  const bool has_properties =
      tool.parameters.is_object() && properties != tool.parameters.end() && properties->is_object();
  if (has_properties && properties->contains(name) && is_text((*properties)[name]))
    return std::string(text);
  const std::string_view value = trimmed(text);
  if (value == "null" || value == "None") return nullptr;
  if (value == "True") return true;
  if (value == "False") return false;
  const Json json = json_in_text(value);
  return json.is_null() ? Json(std::string(text)) : json;
}

std::optional<FunctionCall> called(const CallableTool& tool, const Json& arguments) {
  return FunctionCall{tool.name,
                      arguments.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

// NAME <arg_key>A</arg_key><arg_value>V</arg_value> ...
std::optional<FunctionCall> call_of_keys(std::string_view text, const Tools& tools) {
  const std::string_view name = text.substr(0, std::min(text.find("<arg_key>"), text.size()));
  const CallableTool* tool = tool_named(trimmed(name), tools);
  if (tool == nullptr) return std::nullopt;
  Json arguments = Json::object();
  for (text = trimmed(text.substr(name.size())); !text.empty(); text = trimmed(text)) {
    const auto before = take_until("<arg_key>", text);
    const auto key = take_until("</arg_key>", text);
    const auto between = take_until("<arg_value>", text);
    const auto value = take_until("</arg_value>", text);
    if (!before || !key || !between || !value) return std::nullopt;
    if (!trimmed(*before).empty() || !trimmed(*between).empty()) return std::nullopt;
    const std::string argument(trimmed(*key));
    arguments[argument] = value_of(*tool, argument, *value);
  }
  return called(*tool, arguments);
}

// Without the line ends that the form has around a value.
std::string_view inner_lines(std::string_view text) {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

// <function=NAME><parameter=A>V</parameter> ... </function>
std::optional<FunctionCall> call_of_tags(std::string_view text, const Tools& tools) {
  constexpr std::string_view kFunction = "<function=";
  if (!text.starts_with(kFunction)) return std::nullopt;
  text.remove_prefix(kFunction.size());
  const auto name = take_until(">", text);
  const CallableTool* tool = name ? tool_named(trimmed(*name), tools) : nullptr;
  if (tool == nullptr) return std::nullopt;
  Json arguments = Json::object();
  for (text = trimmed(text); !text.empty() && text != "</function>"; text = trimmed(text)) {
    const auto before = take_until("<parameter=", text);
    const auto key = take_until(">", text);
    const auto value = take_until("</parameter>", text);
    if (!before || !key || !value || !trimmed(*before).empty()) return std::nullopt;
    const std::string argument(trimmed(*key));
    arguments[argument] = value_of(*tool, argument, inner_lines(*value));
  }
  return called(*tool, arguments);
}

// <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜> ... (DeepSeek-V3.1), or with the
// word "function" in the place of NAME, and after the separator NAME and a block of JSON
// (DeepSeek-V3, R1).
Calls calls_of_deepseek(std::string_view text, const Tools& tools) {
  constexpr std::string_view kFence = "```";
  Calls calls;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    const auto before = take_until("<｜tool▁call▁begin｜>", text);
    const auto kind = take_until("<｜tool▁sep｜>", text);
    std::string_view call = text;
    if (const auto whole = take_until("<｜tool▁call▁end｜>", text)) {
      call = *whole;
    } else {
      text = {};
    }
    if (!before || !kind || !trimmed(*before).empty()) return {};
    std::string_view name = trimmed(*kind);
    if (const auto first = take_until(kFence, call)) {
      name = trimmed(*first);
      take_until("json", call);
      call = call.substr(0, std::min(call.rfind(kFence), call.size()));
    }
    const CallableTool* tool = tool_named(name, tools);
    const Json arguments = read(trimmed(call));
    if (tool == nullptr || !arguments.is_object()) return {};
    calls.push_back({tool->name, arguments.dump()});
  }
  return calls;
}

}  // namespace

Calls marked_calls(const CallMarks& marks, std::string_view inner, const Tools& tools) {
  inner = trimmed(inner);
  if (marks.open == kCallMarks[1].open) return calls_of_deepseek(inner, tools);
  if (const Json json = read(inner); !json.is_null()) return calls_of(json, tools);
  std::optional<FunctionCall> call = call_of_tags(inner, tools);
  if (!call) call = call_of_keys(inner, tools);
  return call ? Calls{std::move(*call)} : Calls{};
}

Calls calls_alone(std::string_view text, const Tools& tools) {
  text = trimmed(text);
  for (const std::string_view mark : kMarks) {
    if (text.starts_with(mark)) text = trimmed(text.substr(mark.size()));
  }
  if (const Json whole = read(text); !whole.is_null()) return calls_of(whole, tools);
  Calls calls;  // {...}; {...}
  for (std::size_t begin = 0, at = 0; at < text.size();) {
    at = std::min(text.find(';', at), text.size());
    const Json one = read(trimmed(text.substr(begin, at - begin)));
    ++at;
    if (one.is_null()) continue;  // the ";" is in a text
    Calls found = calls_of(one, tools);
    if (found.empty()) return {};
    calls.insert(calls.end(), found.begin(), found.end());
    begin = at;
    if (at >= text.size()) return calls;
  }
  return {};
}

bool may_be_calls_alone(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == text.npos) return true;
  text.remove_prefix(first);
  if (text.front() == '{' || text.front() == '[') return true;
  const std::string_view tag = kMarks[1];
  return text.starts_with(tag) || tag.starts_with(text);
}

}  // namespace piton
