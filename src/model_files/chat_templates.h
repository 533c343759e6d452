// The chat templates of a GGUF file. They are read here, not rendered. Those of the folder of a
// tokenizer: text/chat/chat_template_files.h.
#pragma once

#include <map>
#include <string>

#include "gguf/gguf_header.h"
#include "text/chat/chat_template_files.h"

namespace piton {

// Of a GGUF file: tokenizer.chat_template, and tokenizer.chat_template.NAME. `texts`: contents of
// the files that its vocabulary has (gguf/vocabulary.h), for the texts of special tokens.
ModelChatTemplates chat_templates_of(const GgufHeader& header,
                                     const std::map<std::string, std::string>& texts,
                                     const std::string& where);

}  // namespace piton
