// AscendSpeed's prompt: a fixed English system sentence, "### Instruction:" before a question and
// "### Response:" before an answer, each text followed by a line end. The whole is encoded as one
// text with the tokens that the tokenizer puts around it. The last answer is learned, with the line
// end after it.
//
// What AscendSpeed's own inference writes differs: an empty line before "### Response:", and no
// line end after it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/instruct/conversation_encoder.h"
#include "data/instruct/prompt_template.h"
#include "text/tokenizer.h"

namespace piton {

struct SeedPromptRules {
  bool every_turn = false;  // each turn is a sample that ends with it
  bool append_eod = false;
  LengthRules lengths;
};

class SeedPrompt final : public ConversationEncoder {
 public:
  // `tokenizer` must outlive this. Throws Error(kUsage) if append_eod is set and it has no eod.
  SeedPrompt(const Tokenizer& tokenizer, SeedPromptRules rules);
  std::vector<TaughtText> encode(const Conversation& conversation) const override;

 private:
  TaughtText sample(std::string text, std::size_t answer) const;

  const Tokenizer* tokenizer_;
  SeedPromptRules rules_;
};

// The prompt of the first `count` messages, and where the last answer begins.
struct SeedText {
  std::string text;
  std::size_t answer = 0;  // byte
};
SeedText seed_text(const Conversation& conversation, std::size_t count);

// The same as a chat template in Jinja, so that what was learned can be asked; --chat-template
// ascendspeed. A message of the system takes the place of the fixed sentence. `tokenizer`: for the
// token that it puts before a text.
inline constexpr std::string_view kSeedPromptName = "ascendspeed";
std::string seed_chat_template(const Tokenizer& tokenizer);

// Baichuan's ids: 195 before a question, 196 before an answer. All answers are learned. The label
// of each 195 is the end-of-text token, which also ends the sample.
class BaichuanPrompt final : public ConversationEncoder {
 public:
  // `tokenizer` must outlive this. Throws Error(kUsage) for one without eos or these ids.
  BaichuanPrompt(const Tokenizer& tokenizer, SeedPromptRules rules);
  std::vector<TaughtText> encode(const Conversation& conversation) const override;

 private:
  const Tokenizer* tokenizer_;
  SeedPromptRules rules_;
};

// The same as a named template, for a chat template. `tokenizer` has these ids.
PromptTemplate baichuan_template(const Tokenizer& tokenizer);

// Number of ids, from the first on, that have a byte of `text` before byte `at`; tokens around the
// text count as before it. Nothing if ids do not decode to `text`, as for tokenizers that
// normalize.
std::optional<std::size_t> ids_before(const Tokenizer& tokenizer,
                                      const std::vector<std::int32_t>& ids, std::string_view text,
                                      std::size_t at);

}  // namespace piton
