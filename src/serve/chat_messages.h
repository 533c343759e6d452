// The messages and tools of a chat request, as a chat template takes them.
#pragma once

#include "serve/request_fields.h"
#include "text/chat/chat_template.h"

namespace piton {

// Reads "messages", "tools" and "tool_choice". The role "developer" becomes "system"; a content of
// several text parts becomes one text. Throws RequestError(400) that names the field.
ChatInput read_chat_input(RequestFields& fields);

}  // namespace piton
