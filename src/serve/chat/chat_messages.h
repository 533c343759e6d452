// The messages and tools of a request for /v1/chat/completions.
#pragma once

#include "serve/chat/chat_request.h"

namespace piton {

// Reads "messages", "tools", "tool_choice", "continue_final_message" with "add_generation_prompt"
// (as vLLM has them), and "chat_template_kwargs" and "reasoning_effort", which are variables of the
// template. The role "developer" becomes "system"; a content of several text
// parts becomes one text, and arguments of calls that are a text of JSON a value. Throws
// RequestError(400) that names the field.
ChatRequest read_chat(RequestFields& fields);

// The field "chat_template_kwargs": an object, empty without the field.
nlohmann::ordered_json read_template_variables(RequestFields& fields);

}  // namespace piton
