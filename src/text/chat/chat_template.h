// Chat templates: a conversation to the text that a model was trained on.
//
// A template is the Jinja source that a model is published with (tokenizer_config.json,
// chat_template.jinja). Texts are byte-equal to those of Transformers' apply_chat_template (version
// 5), including its preparation of messages: fields that are null are left out, and reasoning that
// is given as `thinking` or `reasoning` is also given as `reasoning_content`. What of Jinja is
// supported: text/jinja/jinja_template.h. Unsupported parts are errors, never another text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"

namespace piton {

struct ChatInput {
  nlohmann::ordered_json messages;   // list of objects: {"role": .., "content": .., ..}
  nlohmann::ordered_json tools;      // list of JSON schemas; null: none
  nlohmann::ordered_json documents;  // list of objects; null: none
  nlohmann::ordered_json variables;  // object of further variables of the template; null: none
  // Messages of the assistant that render_with_assistant() leaves out of `assistant`, by index.
  std::set<std::size_t> untaught;
  // What strftime_now() shows, in seconds since 1970 (local time zone); unset: now.
  std::optional<std::int64_t> now_seconds;
};

// Bytes [begin, end) of a text.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const TextRange&) const = default;
};

struct RenderedChat {
  std::string text;
  std::vector<TextRange> assistant;  // what the assistant wrote, ascending
};

class ChatTemplate {
 public:
  // `special_tokens`: object of variables with the texts of special tokens, {"bos_token": "<s>"}.
  // `name`: for messages, the file. Throws Error(kData) with the line if the source is not a
  // template, or needs something that is not supported.
  ChatTemplate(const std::string& source, nlohmann::ordered_json special_tokens, std::string name);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // `assistant` has the ranges of {% generation %} blocks; none if the template has no such blocks.
  // Throws Error(kData) with template, line and reason: the template refuses the conversation
  // (raise_exception), messages are malformed, or a limit is exceeded. Thread-safe.
  RenderedChat render(const ChatInput& input, bool add_generation_prompt) const;

  // The text without generation prompt, and the ranges of all that the assistant wrote. Templates
  // without {% generation %} blocks are rendered once for each message: the range of messages[i]
  // begins where the text of messages[0..i) with generation prompt ends, and ends where the text of
  // messages[0..i] ends. Throws Error(kData) if these texts are not prefixes of the whole text
  // (templates that drop the reasoning of earlier messages), or if a generation block is inside a
  // macro or another block whose output is not written in place. Ranges of the messages that the
  // input leaves out are not looked for. Of generation blocks they are those that appear with the
  // message; Error(kData) if later messages move them.
  RenderedChat render_with_assistant(const ChatInput& input) const;

  // Variables that every conversation has, unless it has its own of this name: an object, or null.
  void set_variables(nlohmann::ordered_json variables);
  // The first name of `variables` that the source does not mention: it would change nothing.
  std::optional<std::string> unread_variable(const nlohmann::ordered_json& variables) const;

  bool has_generation_blocks() const;
  const std::string& name() const { return name_; }
  const std::string& source() const;

 private:
  struct Parts;
  void remove_untaught(const ChatInput& input, RenderedChat& chat) const;
  std::unique_ptr<Parts> parts_;
  std::string name_;
};

}  // namespace piton
