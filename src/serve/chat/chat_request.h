// A conversation with its tools, as a chat template takes it, and what its answer may call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/chat/tool_forms.h"
#include "serve/http/request_fields.h"
#include "text/chat/chat_template.h"

namespace piton {

struct ChatRequest {
  ChatInput input;
  std::vector<CallableTool> tools;  // empty: the answer cannot call any
  // A JSON schema of the answer, if it must be a call: {"name": N, "arguments": ...}; else null.
  nlohmann::ordered_json call_schema;
  // The field that the variable "reasoning_effort" comes from.
  std::string effort_field = "reasoning_effort";
  bool continues = false;  // the answer continues the last message, which is the assistant's
  // Whether the answer begins with reasoning; unset: as the template has it.
  std::optional<bool> reasons;
};

enum class ToolChoice : std::uint8_t { kAuto, kNone, kRequired, kNamed };

// `description`: the tool in the form of chat templates, {"type": "function", "function": {...}}.
// `parameters`: null if it has none.
void add_tool(ChatRequest& request, const std::string& name,
              const nlohmann::ordered_json* parameters, nlohmann::ordered_json description);

// After all tools were added. `name`: of kNamed. Throws RequestError(400) for "tool_choice".
void choose_tools(ChatRequest& request, ToolChoice choice, const std::string& name,
                  const RequestFields& fields);

// Arguments of a call as a value: clients send them as a text of JSON, as they get them, and
// templates write values. A text of no object stays as it is.
nlohmann::ordered_json arguments_value(const nlohmann::ordered_json& arguments);

// The text of field `name`, a string or a list of parts whose "type" is one of `types`; nothing if
// it is absent. Fields that say how a part is stored or quoted are ignored. Throws
// RequestError(400).
std::optional<std::string> text_of_parts(RequestFields& fields, const std::string& name,
                                         const std::vector<std::string>& types);

}  // namespace piton
