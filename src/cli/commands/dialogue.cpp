#include "cli/commands/dialogue.h"

#include <algorithm>

#include "base/error.h"
#include "text/chat/chat_tokens.h"

namespace piton::cli {

Dialogue::Prompt Dialogue::prompt() const {
  const auto questions = static_cast<std::int64_t>(turns_.size() + 1) / 2;
  Prompt prompt;
  if (limits_.turns > 0) prompt.left_out = std::max<std::int64_t>(0, questions - limits_.turns);
  for (;; ++prompt.left_out) {
    ChatInput input;
    input.messages = nlohmann::ordered_json::array();
    if (!system_.empty()) input.messages.push_back({{"role", "system"}, {"content", system_}});
    for (auto at = static_cast<std::size_t>(2 * prompt.left_out); at < turns_.size(); ++at)
      input.messages.push_back(turns_[at]);
    prompt.ids = encode_chat(tokenizer_, template_.render(input, true)).ids;
    const auto tokens = static_cast<std::int64_t>(prompt.ids.size());
    if (tokens <= limits_.tokens) return prompt;
    if (prompt.left_out + 1 == questions) {
      throw Error(Fault::kUsage,
                  "the question has {} tokens, {} fit; ask a shorter one, or give a smaller "
                  "--max-new-tokens",
                  tokens, limits_.tokens);
    }
  }
}

}  // namespace piton::cli
