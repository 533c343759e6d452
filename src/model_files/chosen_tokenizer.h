// The tokenizer that the options of a command name: its files, or a model that has it.
#pragma once

#include "model_files/model_tokenizer.h"
#include "text/chat/chat_template_files.h"

namespace piton {

struct ChosenTokenizer {
  ModelTokenizer tokenizer;
  ModelChatTemplates chat_templates;
  std::string where;  // for messages
};

// --tokenizer-name-or-path may be a run, one of its checkpoints or a GGUF file too: then it is that
// model's tokenizer. Throws Error(kData) if the model has none or cannot be read.
ChosenTokenizer chosen_tokenizer(const TokenizerOptions& options);

// Throws Error(kUsage) if none is chosen, and Error(kData) as open_tokenizer() of its files does.
std::unique_ptr<Tokenizer> open_tokenizer(const ChosenTokenizer& chosen);

}  // namespace piton
