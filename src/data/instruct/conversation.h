// A conversation: what a record of instruction data says, in whatever format, and the tokens that a
// model learns from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace piton {

enum class MessageRole {
  kUser,
  kAssistant,
  kFunction,     // calls of tools, by the assistant; `content` is JSON (tool_text.h)
  kObservation,  // results of tools
};

// "user", "assistant", "function", "observation".
std::string_view name(MessageRole role);

struct Message {
  MessageRole role = MessageRole::kUser;
  std::string content;
  bool taught = true;     // of an answer; false: it is shown, not learned ("weight": 0)
  std::string said = {};  // of calls of tools: the text of the message before them
  // The messages of OpenAI's form that this one is, with fields that only the model's own template
  // reads (reasoning, ids of calls): a list, or null where the record has another form.
  nlohmann::ordered_json given = nullptr;

  // Whether they say the same; `given` may have fields that mean nothing.
  bool operator==(const Message& other) const;
};

struct Conversation {
  std::string system;  // "": none, or an empty one
  // There is a message of the system, which may be empty: then a template writes that in place of
  // its own words.
  bool has_system = false;
  std::string tools;  // JSON: a list of descriptions; "": none
  std::vector<Message> messages;
  // Pairwise data: the answer that is worse than the last message.
  std::optional<Message> rejected;
  // Judged data: whether the last message is a good answer.
  std::optional<bool> desirable;
  // Of texts with labels (data/instruct/labeled_texts.h): a name, or a number as text.
  std::optional<std::string> label;
  std::optional<std::vector<std::string>> label_list;  // in its place, where the record has a list
};

// The user's and the tools' messages alternate with the assistant's: user first, assistant last.
// Throws Error(kData) that names the first message which breaks this. The answers of a pair differ,
// and neither they nor a judged one is empty or left out of what is learned.
void check_turns(const Conversation& conversation);

// What is not learned has this label.
inline constexpr std::int32_t kIgnoredLabel = -100;

// labels[i] is what the model shall predict for position i from the ids before it: ids[i], or
// kIgnoredLabel; in two places the end-of-turn token (named_prompt.h). Same length as ids.
struct TaughtText {
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> labels;
};

// Number of ids that teach. The first label counts not: nothing precedes it.
std::int64_t taught_tokens(const TaughtText& sample);

}  // namespace piton
