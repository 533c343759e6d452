#include "serve/tool_calls.h"

#include <algorithm>
#include <array>
#include <optional>

#include "text/chat/json_in_text.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr auto kMarks = std::to_array<std::string_view>({"[TOOL_CALLS]", "<|python_tag|>"});
constexpr std::string_view kSpace = " \t\r\n";

std::string_view stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// The object or the list that `text` is; null if it is none.
Json read(std::string_view text) {
  if (!text.starts_with('{') && !text.starts_with('[')) return nullptr;
  return json_in_text(text);
}

std::optional<FunctionCall> call_of(const Json& json, const std::vector<std::string>& tools) {
  if (!json.is_object()) return std::nullopt;
  const auto name = json.find("name");
  if (name == json.end() || !name->is_string()) return std::nullopt;
  if (std::ranges::find(tools, name->get<std::string>()) == tools.end()) return std::nullopt;
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
std::vector<FunctionCall> calls_of(const Json& json, const std::vector<std::string>& tools) {
  std::vector<FunctionCall> calls;
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

// Those of an answer of calls alone, with or without a mark before them.
std::vector<FunctionCall> calls_alone(std::string_view text,
                                      const std::vector<std::string>& tools) {
  text = stripped(text);
  for (const std::string_view mark : kMarks) {
    if (text.starts_with(mark)) text = stripped(text.substr(mark.size()));
  }
  if (const Json whole = read(text); !whole.is_null()) return calls_of(whole, tools);
  std::vector<FunctionCall> calls;  // {...}; {...}
  for (std::size_t begin = 0, at = 0; at < text.size();) {
    at = std::min(text.find(';', at), text.size());
    const Json one = read(stripped(text.substr(begin, at - begin)));
    ++at;
    if (one.is_null()) continue;  // the ";" is in a text
    std::vector<FunctionCall> found = calls_of(one, tools);
    if (found.empty()) return {};
    calls.insert(calls.end(), found.begin(), found.end());
    begin = at;
    if (at >= text.size()) return calls;
  }
  return {};
}

// Whether an answer that begins so may be one of calls alone.
bool may_be_calls(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == text.npos) return true;
  text.remove_prefix(first);
  if (text.front() == '{' || text.front() == '[') return true;
  const std::string_view tag = kMarks[1];
  return text.starts_with(tag) || tag.starts_with(text);
}

// Bytes at the end of `text` that may begin `word`.
std::size_t beginning_of(std::string_view text, std::string_view word) {
  for (std::size_t length = std::min(word.size() - 1, text.size()); length > 0; --length) {
    if (text.ends_with(word.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

std::string ToolCallText::push(std::string_view part) {
  if (tools_.empty()) return std::string(part);
  held_ += part;
  if (!began_ && may_be_calls(held_)) return "";
  std::size_t certain = held_.find(kOpen);
  if (certain == held_.npos) certain = held_.size() - beginning_of(held_, kOpen);
  std::string text = held_.substr(0, certain);
  held_.erase(0, certain);
  began_ = began_ || !text.empty();
  return text;
}

std::string ToolCallText::finish() {
  if (!began_) {
    calls_ = calls_alone(held_, tools_);
    if (!calls_.empty()) held_.clear();
  }
  std::string text;
  std::string_view rest = held_;
  while (true) {
    const std::size_t open = rest.find(kOpen);
    if (open == rest.npos) break;
    const std::string_view inner = rest.substr(open + kOpen.size());
    const std::size_t end = std::min(inner.find(kClose), inner.size());
    const std::vector<FunctionCall> found = calls_of(read(stripped(inner.substr(0, end))), tools_);
    if (found.empty()) break;
    // White space between calls is no text.
    const std::string_view before = rest.substr(0, open);
    if (calls_.empty() || !stripped(before).empty()) text += before;
    calls_.insert(calls_.end(), found.begin(), found.end());
    rest = inner.substr(std::min(end + kClose.size(), inner.size()));
  }
  if (calls_.empty() || !stripped(rest).empty()) text += rest;
  held_.clear();
  return text;
}

}  // namespace piton
