#include "data/instruct/conversation.h"

#include <algorithm>

#include "base/error.h"

namespace piton {
namespace {

// Whether two answers give the same reasoning, in fields other than their content.
bool same_reasoning(const Message& one, const Message& other) {
  const auto reasoning = [](const Message& message, const char* key) {
    const bool given = message.given.is_array() && message.given.back().contains(key);
    return given ? message.given.back()[key] : nlohmann::ordered_json();
  };
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    if (reasoning(one, key) != reasoning(other, key)) return false;
  }
  return true;
}

}  // namespace

bool Message::operator==(const Message& other) const {
  return role == other.role && content == other.content && taught == other.taught &&
         said == other.said && same_reasoning(*this, other);
}

std::string_view name(MessageRole role) {
  switch (role) {
    case MessageRole::kUser:
      return "user";
    case MessageRole::kAssistant:
      return "assistant";
    case MessageRole::kFunction:
      return "function";
    case MessageRole::kObservation:
      return "observation";
  }
  PITON_ASSERT(false, "role {}", static_cast<int>(role));
  return "";
}

void check_turns(const Conversation& conversation) {
  const std::vector<Message>& messages = conversation.messages;
  if (messages.empty()) throw Error(Fault::kData, "the conversation has no messages");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const MessageRole role = messages[i].role;
    const bool asks = role == MessageRole::kUser || role == MessageRole::kObservation;
    if (asks == (i % 2 == 0)) continue;
    throw Error(Fault::kData, "message {} is of the {}, wanted {}", i + 1, name(role),
                i % 2 == 0 ? "user or observation" : "assistant or function");
  }
  if (messages.size() % 2 != 0) {
    throw Error(Fault::kData, "the last of {} messages is of the {}; wanted an answer",
                messages.size(), name(messages.back().role));
  }
  if (!conversation.rejected && !conversation.desirable) return;
  if (!messages.back().taught || (conversation.rejected && !conversation.rejected->taught)) {
    throw Error(Fault::kData, "the {} answer has \"weight\" 0, but it is what is learned",
                messages.back().taught  ? "rejected"
                : conversation.rejected ? "chosen"
                                        : "judged");
  }
  if (messages.back().content.empty()) {
    throw Error(Fault::kData, "the {} answer is empty",
                conversation.rejected ? "chosen" : "judged");
  }
  if (!conversation.rejected) return;
  if (conversation.rejected->content.empty())
    throw Error(Fault::kData, "the rejected answer is empty");
  if (*conversation.rejected == messages.back())
    throw Error(Fault::kData, "chosen and rejected are equal; there is nothing to prefer");
}

std::int64_t taught_tokens(const TaughtText& sample) {
  if (sample.labels.empty()) return 0;
  return std::count_if(sample.labels.begin() + 1, sample.labels.end(),
                       [](std::int32_t label) { return label != kIgnoredLabel; });
}

}  // namespace piton
