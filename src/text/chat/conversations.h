// Conversations from files: one JSON value, or one on each line (JSONL).
//
// A conversation is a list of messages, or an object with "messages" (OpenAI: "role", "content") or
// "conversations" (ShareGPT: "from", "value"), and optionally "tools" and "documents". Other fields
// of the object are variables of the template. Roles of ShareGPT: human and user are user, gpt and
// chatgpt are assistant, function_call is an assistant's message with calls of tools, observation
// and tool are tool, system is system; a text in "system" next to the list is the first message.
// An answer with "weight": 0 is not learned (ChatInput::untaught), as OpenAI's files have it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/chat/chat_template.h"

namespace piton {

// `where`: the file, for messages. Throws Error(kData) with the number of the conversation if it is
// none of these, or the line if it is not JSON.
std::vector<ChatInput> read_conversations(std::string_view text, const std::string& where);

// Whether an answer is learned: without "weight", or with 1 or true; not with 0 or false.
// `message`: an object. Throws Error(kData) for other weights.
bool is_taught(const nlohmann::ordered_json& message);

}  // namespace piton
