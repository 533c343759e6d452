// A conversation of `piton chat`: its turns, and the prompt that the model continues.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer.h"

namespace piton::cli {

struct DialogueLimits {
  std::int64_t turns = 0;   // questions that the model sees, with their answers; 0: all
  std::int64_t tokens = 0;  // of the prompt: the longest sequence less room for an answer
};

class Dialogue {
 public:
  // `system`: the text of the system message; "": none. References must outlive it.
  Dialogue(const ChatTemplate& chat_template, const Tokenizer& tokenizer, std::string system,
           DialogueLimits limits)
      : template_(chat_template),
        tokenizer_(tokenizer),
        system_(std::move(system)),
        limits_(limits) {}

  void ask(const std::string& text) { add("user", text); }
  void answer(const std::string& text) { add("assistant", text); }
  // Takes back the last question.
  void take_back() { turns_.erase(turns_.size() - 1); }
  void clear() { turns_ = nlohmann::ordered_json::array(); }

  struct Prompt {
    std::vector<std::int32_t> ids;
    std::int64_t left_out = 0;  // earliest turns that the model does not see
  };
  // The prompt for an answer to the last question. The earliest turns are left out where all do not
  // fit within the limits. Throws Error(kUsage) if the last question alone does not fit, and
  // Error(kData) if the template refuses the dialogue.
  Prompt prompt() const;

 private:
  void add(const char* role, const std::string& text) {
    turns_.push_back({{"role", role}, {"content", text}});
  }

  const ChatTemplate& template_;
  const Tokenizer& tokenizer_;
  std::string system_;
  DialogueLimits limits_;
  nlohmann::ordered_json turns_ = nlohmann::ordered_json::array();
};

}  // namespace piton::cli
