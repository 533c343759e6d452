#include "text/chat/written_tools.h"

#include <utility>

#include "base/error.h"

namespace piton {
namespace {

using Json = nlohmann::ordered_json;

// A character of private use, which no name of a tool has.
constexpr const char* kOtherName = "\uE000";

// The input with other names of its tools, and the one with other names of the tools that are
// called; nothing where there are none.
std::optional<ChatInput> with_other_tools(ChatInput input) {
  if (input.tools.is_null()) return {};
  for (Json& tool : input.tools) {
    if (!tool["function"].is_object()) tool["function"] = Json::object();
    tool["function"]["name"] = kOtherName;
    if (tool.contains("name")) tool["name"] = kOtherName;
  }
  return input;
}

std::optional<ChatInput> with_other_calls(ChatInput input) {
  bool has_calls = false;
  for (Json& message : input.messages) {
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (Json& call : *calls) {
      call["function"]["name"] = kOtherName;
      has_calls = true;
    }
  }
  return has_calls ? std::optional(std::move(input)) : std::nullopt;
}

}  // namespace

std::optional<std::string_view> left_out_of_text(const ChatTemplate& chat_template,
                                                 const ChatInput& input) {
  const auto text_of = [&](const ChatInput& one) {
    return chat_template.render(one, /*add_generation_prompt=*/false).text;
  };
  const auto calls = with_other_calls(input);
  const auto tools = with_other_tools(input);
  if (!calls && !tools) return {};
  const auto is_written = [&, text = text_of(input)](const ChatInput& other) {
    try {
      return text_of(other) != text;
    } catch (const Error&) {
      return true;  // it reads the names
    }
  };
  if (calls && !is_written(*calls)) return "tool calls";
  if (tools && !is_written(*tools)) return "tools";
  return {};
}

}  // namespace piton
