// Texts, or pairs of texts, with a label: records of a classifier's data, and their tokens.
//
// A record has its text under one of these keys, the first that is there, and its label, a number
// or a name, or a list of several, under "label", or else under "labels" or "score":
//
//   text, with text_pair     sentence1 and sentence2     question1 and question2
//   premise and hypothesis   question and sentence       question and passage       sentence
//
// The tokens are those of Transformers' tokenizer(text, pair): of encoders [CLS] text [SEP] pair
// [SEP], of RoBERTa <s> text </s></s> pair </s>; of others what the tokenizer puts around each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/instruct/conversation_encoder.h"
#include "data/instruct/record_fields.h"
#include "text/tokenizer.h"

namespace piton {

// The keys, as RecordFields have them.
inline constexpr std::string_view kLabeledFields =
    "text=text? text_pair=text_pair? sentence=sentence? sentence1=sentence1? sentence2=sentence2? "
    "premise=premise? hypothesis=hypothesis? question=question? question1=question1? "
    "question2=question2? passage=passage? label=label? labels=labels? "
    "score=score?";

// Of a label that is one.
std::optional<std::int64_t> whole_number(const std::string& label);

// Which labels there are.
struct KnownLabels {
  std::vector<std::string> names;  // empty: numbers alone
  std::int64_t count = 0;          // 0: not known; 1: numbers with a fraction (regression)
  bool several = false;            // a text has any number of them

  // Of a name, or else of a number from 0 on, unless all names are numbers. Throws Error(kData) for
  // another one.
  std::int32_t number_of(const std::string& label) const;
  // Of regression. Throws Error(kData) for a text that is no number.
  static float value_of(const std::string& label);
  bool are_values() const { return count == 1 && !several; }
  // What the data set holds of a text with a label or a list of them: number_of() of each, in
  // ascending order, or the bits of value_of(). One label is a list of one where a text may have
  // several. Throws Error(kData) also for a list where it may not, and for a label twice.
  std::vector<std::int32_t> stored(const Conversation& text) const;
};

// The text is the first message, its pair the second one. Throws Error(kData) with the reason why
// the record cannot be used. `needs_label`: a record without one is such a reason.
Conversation read_labeled(const RecordFields& fields, const nlohmann::ordered_json& record,
                          bool needs_label = true);

// What a token is: kPartOfPair is added for those of the second text and the special tokens after
// it.
inline constexpr std::int32_t kPartSpecial = 0;
inline constexpr std::int32_t kPartText = 1;
inline constexpr std::int32_t kPartOfPair = 2;

// Their TaughtText has these parts in the place of labels.
class LabelPrompt final : public ConversationEncoder {
 public:
  // `tokenizer` must outlive it.
  explicit LabelPrompt(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  std::vector<TaughtText> encode(const Conversation& conversation) const override;

 private:
  TaughtText encode_one(const std::string& text, bool is_pair) const;

  const Tokenizer& tokenizer_;
};

// Of each token 1 if it is of the pair, else 0. `parts`: TaughtText::labels of a LabelPrompt.
std::vector<std::int32_t> types_of_pair(const std::vector<std::int32_t>& parts);

// Leaves out tokens at the ends of the texts, of the longer one first, so that at most `most`
// tokens are left: Transformers' truncation=True. Returns false if special tokens alone are more.
bool cut_labeled(TaughtText& text, std::int64_t most);

}  // namespace piton
