// Conversations to samples.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/instruct/conversation.h"

namespace piton {

class ConversationEncoder {
 public:
  virtual ~ConversationEncoder() = default;
  // The samples of a conversation: usually one. Throws Error(kData) if the template has no form for
  // it, or if it teaches nothing. Thread-safe.
  virtual std::vector<TaughtText> encode(const Conversation& conversation) const = 0;
};

// How long a sample may be.
struct LengthRules {
  // Longer samples are cut, by cut_turn().
  std::optional<std::int64_t> cutoff;
};

// How many ids of a turn are kept so that it has at most `cutoff`: LlamaFactory's rule. The longer
// one of question and answer is cut at its end; if both are longer than half, both in proportion.
struct TurnLengths {
  std::int64_t source = 0;
  std::int64_t target = 0;
  bool operator==(const TurnLengths&) const = default;
};
TurnLengths cut_turn(TurnLengths turn, std::int64_t cutoff);

// Cuts the turns of a sample so that it has at most `cutoff` ids: ids without a label and the
// labeled ones after them are a turn. Turns without room are left out.
TaughtText cut_sample(const TaughtText& sample, std::int64_t cutoff);

// A question and an answer to it, which begins at the first label.
struct AnswerText {
  std::vector<std::int32_t>& ids;
  std::vector<std::int32_t>& labels;

  std::int64_t question() const;  // ids
};
// Cuts answers to one question so that each text has at most `cutoff` ids, by cut_turn() for the
// longest answer: all keep the same part of the question. Each keeps at least an id of its answer.
void cut_answers(std::span<const AnswerText> texts, std::int64_t cutoff);
void cut_answers(std::vector<TaughtText>& samples, std::int64_t cutoff);

}  // namespace piton
