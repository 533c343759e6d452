// A rendered conversation as token ids, with the ids that the assistant wrote.
#pragma once

#include <cstdint>
#include <vector>

#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace piton {

struct ChatTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> assistant;  // [ids]: 1 for an id with a byte in an assistant range
};

// Special tokens in the text become their ids, and none are added around it: templates write <s>
// themselves. The mask equals Transformers' `return_assistant_tokens_mask`, with four exceptions
// where that is wrong: an empty range has no ids; if the last character of a range has several ids,
// all of them count; a range whose first character has no id (white space that a tokenizer drops)
// does not end the mask; and one whose last character has none does not extend to the end of the
// text.
ChatTokens encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat);

}  // namespace piton
