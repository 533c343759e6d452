// The conversation of a request for /v1/messages: its system text, blocks and tools.
//
//   block         becomes
//   text          a part of the message's text
//   thinking      "reasoning_content" of the assistant's message
//   tool_use      a call in "tool_calls" of the assistant's message
//   tool_result   a message of the role "tool"; the text before and after it are messages of the
//                 user
#pragma once

#include "serve/chat/chat_request.h"

namespace piton {

// Reads "system", "messages", "tools", "tool_choice", "thinking" and "chat_template_kwargs". Throws
// RequestError(400) that names the field.
ChatRequest read_message_blocks(RequestFields& fields);

// "disable_parallel_tool_use" of "tool_choice".
bool only_one_call(RequestFields& fields);

}  // namespace piton
