// The messages and tools of a chat request, as a chat template takes them.
#pragma once

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
};

// Reads "messages", "tools", "tool_choice", "chat_template_kwargs" and "reasoning_effort", which
// are variables of the template. The role "developer" becomes "system"; a content of several text
// parts becomes one text, and arguments of calls that are a text of JSON a value. Throws
// RequestError(400) that names the field.
ChatRequest read_chat(RequestFields& fields);

}  // namespace piton
