// The conversation of a request for /v1/responses: its instructions, items and tools.
//
//   item                    becomes
//   message                 a message; the role "developer" is "system"
//   reasoning               "reasoning_content" of the assistant's next message
//   function_call           a call in "tool_calls" of the assistant's message before it
//   function_call_output    a message of the role "tool"
//
// so that the items of one answer, sent back, are one message, as templates take it.
#pragma once

#include "serve/chat/chat_request.h"

namespace piton {

// Reads "instructions", "input", "tools", "tool_choice", "reasoning" and "chat_template_kwargs".
// Throws RequestError(400) that names the field.
ChatRequest read_response_input(RequestFields& fields);

}  // namespace piton
