// Conversations whose last message is begun, for an answer that continues it.
#pragma once

#include "text/chat/chat_template.h"

namespace piton {

// The text of the conversation up to the end of the last message's content, as Transformers'
// apply_chat_template has it with continue_final_message. The content is a string. Throws
// Error(kData) as ChatTemplate::render(), and if the template does not write the content.
RenderedChat render_continued(const ChatTemplate& chat_template, ChatInput input);

}  // namespace piton
