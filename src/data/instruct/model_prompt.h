// Conversations in the form of the model's own chat template, which its tokenizer's folder has.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/instruct/conversation_encoder.h"
#include "data/instruct/thinking.h"
#include "text/chat/chat_template_files.h"
#include "text/tokenizer.h"

namespace piton {

struct ModelPromptRules {
  Thinking thinking = Thinking::kAsGiven;  // given to the template as true or false
  bool append_eod = false;
  LengthRules lengths;
};

// What the template shows as the date of today, so that data does not depend on the day: 26 July
// 2024, which templates of Llama 3.1 show where they are given no date.
inline constexpr std::int64_t kDateOfPrompts = 1721952000;

class ModelPrompt final : public ConversationEncoder {
 public:
  // `tokenizer` must outlive this. Throws Error(kUsage) if there is no template (--prompt-type must
  // name one), and Error(kData) if the model's cannot be read.
  ModelPrompt(const ModelChatTemplates& templates, const Tokenizer& tokenizer,
              ModelPromptRules rules);

  // Every answer is learned, with what the template writes after it; of pairs and judged answers
  // the last one. A message without a content gets an empty one where the template refuses it else.
  // Throws Error(kData) too if the template leaves out tools or their calls.
  std::vector<TaughtText> encode(const Conversation& conversation) const override;

  // The templates as they are written.
  std::string source() const;

 private:
  TaughtText sample(const Conversation& conversation, bool last_alone) const;  // not cut

  const Tokenizer* tokenizer_;
  ModelPromptRules rules_;
  std::optional<ChatTemplate> plain_;
  std::optional<ChatTemplate> with_tools_;
};

// Where a sample under --prompt-type and that of the model's own template first differ, for
// a warning; "" if they are equal or if there is no such template.
std::string difference_from_model(const ModelChatTemplates& templates, const Tokenizer& tokenizer,
                                  const Conversation& conversation, const TaughtText& sample);

// The messages as a chat template reads them: role, content, tool_calls, and all other fields that
// messages of OpenAI's form have. Arguments of calls that are a text of JSON become its value.
ChatInput chat_input(const Conversation& conversation);

}  // namespace piton
