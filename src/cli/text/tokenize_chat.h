// piton tokenize --chat: conversations as a model's chat template writes them, with ids and mask.
#pragma once

#include <string>

#include "base/options/options.h"
#include "cli/chat_variables.h"
#include "text/chat/chat_template_files.h"
#include "text/tokenizer.h"

namespace piton::cli {

struct ChatDisplayOptions {
  bool chat = false;
  std::string chat_template;
  ChatVariables variables;
  bool add_generation_prompt = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"chat",
             "read conversations (JSON or JSONL: OpenAI messages, ShareGPT conversations), and "
             "print text, ids and the mask of assistant tokens"},
      chat);
    v(Option{"chat-template",
             "with --chat: a file in Jinja, the name of a template in the tokenizer's folder, or "
             "one of --prompt-type (default: the folder's; tool_use for conversations with tools)",
             {.placeholder = "NAME"}},
      chat_template);
    variables.visit(v);
    v(Option{"add-generation-prompt", "with --chat: end with the prompt for the next answer"},
      add_generation_prompt);
  }
};

// `text`: what was read from `where`. Prints one JSON object per conversation if `json`; pieces too
// if `pieces`.
struct ChatDisplay {
  const Tokenizer& tokenizer;
  const ChatDisplayOptions& options;
  const ModelChatTemplates& templates;
  std::string where;
  bool json = false;
  bool pieces = false;
};
void print_chats(const ChatDisplay& display, const std::string& text);

}  // namespace piton::cli
