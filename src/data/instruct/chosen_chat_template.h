// The chat template that a user names: --chat-template.
#pragma once

#include <string>

#include "text/chat/chat_template.h"
#include "text/chat/chat_template_files.h"
#include "text/tokenizer.h"

namespace piton {

// `wanted`: a file in Jinja, the name of one of the model's templates, a name of --prompt-type,
// "ascendspeed" (seed_prompt.h), or "" for the model's default, with tools that for tools.
// `tokenizer`: the model's. Throws Error(kUsage) with the names that exist, and Error(kData) if the
// template is malformed, or as choose_chat_template().
ChatTemplate chosen_chat_template(const ChatTemplateFiles& files, const std::string& wanted,
                                  bool with_tools, const Tokenizer& tokenizer);

}  // namespace piton
