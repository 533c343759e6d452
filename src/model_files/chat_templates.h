// The chat templates of a model on disk: of the folder of its tokenizer (text/chat), or of a GGUF
// file. They are read here, not rendered.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "gguf/gguf_header.h"
#include "text/chat/chat_template_files.h"

namespace piton {

struct ModelChatTemplates {
  ChatTemplateFiles files;
  std::string fault;  // why they cannot be read; "": they can
};

// In the folder of a tokenizer, by the rules of Transformers (text/chat/chat_template_files.h).
// "": none.
ModelChatTemplates chat_templates_in(const std::filesystem::path& folder);

// Of a GGUF file: tokenizer.chat_template, and tokenizer.chat_template.NAME. `texts`: contents of
// the files that its vocabulary has (gguf/vocabulary.h), for the texts of special tokens.
ModelChatTemplates chat_templates_of(const GgufHeader& header,
                                     const std::map<std::string, std::string>& texts,
                                     const std::string& where);

}  // namespace piton
