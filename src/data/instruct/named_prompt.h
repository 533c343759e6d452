// Conversations in the form of a named template (prompt_template.h), as MindSpeed-LLM and
// LlamaFactory encode them.
//
// Every answer is learned, with its end-of-turn token. Where a template has efficient_eos, the
// first id of each later turn has the end-of-turn token as its label: the model shall end its
// answer there; and the sample ends with that token. An answer that is not taught has no labels,
// and neither has its end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/instruct/conversation_encoder.h"
#include "data/instruct/prompt_template.h"
#include "data/instruct/special_texts.h"
#include "data/instruct/thinking.h"
#include "text/tokenizer.h"

namespace piton {

struct NamedPromptRules {
  Thinking thinking = Thinking::kAsGiven;
  bool append_eod = false;
  LengthRules lengths;
};

class NamedPrompt final : public ConversationEncoder {
 public:
  // `tokenizer` must outlive this. Throws Error(kUsage) if it lacks a token that the template
  // needs.
  NamedPrompt(PromptTemplate prompt, const Tokenizer& tokenizer, NamedPromptRules rules);

  // Pairs give two samples: the last message, and the rejected one in its place.
  std::vector<TaughtText> encode(const Conversation& conversation) const override;

  // The text, special tokens by their names; for messages.
  const PromptTemplate& prompt() const { return prompt_; }

 private:
  struct Turn {
    std::vector<std::int32_t> source;  // all before the answer
    std::vector<std::int32_t> target;  // the answer
    bool taught = true;
  };

  // `last_alone`: only the last answer is learned; earlier ones have no thoughts.
  std::vector<Turn> turns(const Conversation& conversation, bool last_alone) const;
  void add_message(const Message& message, std::size_t index, const std::string& before,
                   std::vector<std::int32_t>& ids) const;
  void add_slots(const Slots& slots, const std::vector<std::pair<std::string, std::string>>& values,
                 std::vector<std::int32_t>& ids) const;
  void remove_thoughts(std::vector<Message>& messages, bool last_alone) const;
  void add_thoughts(const std::vector<Message>& messages, bool last_alone,
                    std::vector<Turn>& turns) const;
  TaughtText joined(const std::vector<Turn>& turns, std::optional<std::int64_t> cutoff) const;
  TaughtText of_pair(const std::vector<Turn>& turns) const;
  void close(TaughtText& sample, bool taught) const;

  PromptTemplate prompt_;
  const Tokenizer* tokenizer_;
  NamedPromptRules rules_;
  SpecialTexts special_;
  std::optional<std::int32_t> eos_;
};

}  // namespace piton
