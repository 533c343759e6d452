// Conversations and their samples under the tokenizer of bytes, for tests of prompts.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/instruct/conversation.h"

namespace piton {

// Vocabularies that are not in the repository.
inline std::filesystem::path shared_vocabularies() {
  return std::filesystem::path(PITON_SOURCE_DIR) / ".." / "shared" / "data" / "tokenizers";
}

// The user begins, and the assistant answers.
inline Conversation talk(const std::vector<std::string>& texts) {
  Conversation conversation;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    conversation.messages.push_back(
        {i % 2 == 0 ? MessageRole::kUser : MessageRole::kAssistant, texts[i]});
  }
  return conversation;
}

// Bytes; the end-of-text token is "$", an ignored label "_".
inline std::string byte_text(const std::vector<std::int32_t>& ids) {
  std::string text;
  for (const std::int32_t id : ids) {
    text += id == kIgnoredLabel ? '_' : id == 256 ? '$' : static_cast<char>(id);
  }
  return text;
}

}  // namespace piton
