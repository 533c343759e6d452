// Records in the formats that LlamaFactory and MindSpeed-LLM read (alpaca, sharegpt, and messages
// as of OpenAI), and in those of TRL. Each function throws Error(kData) with the reason why a
// record cannot be used.
#pragma once

#include "base/json.h"
#include "data/instruct/conversation.h"
#include "data/instruct/record_fields.h"

namespace piton {

// Earlier turns are pairs in `history`. The user says instruction and input, the parts that are not
// empty, with a line end between them. With fields chosen and rejected: pairwise data.
Conversation read_alpaca(const RecordFields& fields, const nlohmann::ordered_json& record);

// Messages {from, value}. If the user did not give other tags, user, assistant, function and tool
// are read as human, gpt, function_call and observation. With fields chosen and rejected, each a
// message: pairwise data.
Conversation read_share_gpt(const RecordFields& fields, const nlohmann::ordered_json& record);

// Messages {role, content}; `content` is a text or a list of parts with texts. Calls of tools
// (tool_calls) become a function message, which begins with the content as <think>..</think> if
// there is reasoning_content. Results of tools that follow each other become one message, joined as
// Qwen writes them. Message::given has them as they are.
Conversation read_messages(const RecordFields& fields, const nlohmann::ordered_json& record);

// As TRL has them. The prompt is a text, the user's, or a list of messages; the answer (completion,
// chosen, rejected) a text, or a list of messages that continue the prompt. A list that begins with
// the user or the system is the whole conversation, in place of the prompt; then the lists of
// chosen and rejected are equal but for their last messages.
Conversation read_prompt(const RecordFields& fields, const nlohmann::ordered_json& record);

}  // namespace piton
