// Whether a chat template writes the tools of a conversation and their calls, or leaves them out
// without a word, as templates of models do that were not trained to call tools.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/chat/chat_template.h"

namespace piton {

// "tool calls" or "tools": what the input has, and the template does not write; nothing if there is
// no such. Renders inputs that have them again with other names. Throws as ChatTemplate::render().
std::optional<std::string_view> left_out_of_text(const ChatTemplate& chat_template,
                                                 const ChatInput& input);

}  // namespace piton
