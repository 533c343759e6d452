// Records of AscendSpeed's handlers, each of which has a format for turns within one text. Each
// function throws Error(kData) with the reason why a record cannot be used.
#pragma once

#include "base/json.h"
#include "data/instruct/conversation.h"
#include "data/instruct/record_fields.h"

namespace piton {

// The user says instruction, a line end, and input (even where it is empty).
Conversation read_instruction(const RecordFields& fields, const nlohmann::ordered_json& record);

// `instruction` has turns after "Human:" and "Assistant:"; the answer to the last is `output`.
// White space around a turn is dropped. What follows the last "Assistant:" must be empty.
Conversation read_belle(const RecordFields& fields, const nlohmann::ordered_json& record);

// `chat`: an object of turns, each with Human and MOSS; a null is no turn. The marks <|Human|>,
// <eoh>, <|MOSS|> and <eom> are dropped, and white space around a turn.
Conversation read_moss(const RecordFields& fields, const nlohmann::ordered_json& record);

// The user says what precedes the first ``` of the problem; the answer is the code and its
// explanation.
Conversation read_leetcode(const RecordFields& fields, const nlohmann::ordered_json& record);

}  // namespace piton
