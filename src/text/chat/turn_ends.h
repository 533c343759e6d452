// Where an answer ends: the tokens that a chat template writes after what the assistant says.
#pragma once

#include <cstdint>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace piton {

// The special token that the template writes first after an answer (<|im_end|>, <|eot_id|>, </s>):
// a model that was trained with the template generates it at the end of its turn. Empty if the
// template writes none, or refuses a conversation of one question and one answer.
std::vector<std::int32_t> turn_ends(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace piton
