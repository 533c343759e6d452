// Answers that are a list of blocks: reasoning, text, calls of tools. Streams of them open one
// block after another, write it in parts, and close it.
#pragma once

#include "serve/answers.h"

namespace piton {

// White space before calls is no text. Without calls there is a text, which may be empty.
class BlockAnswer : public AnswerForm {
 public:
  std::string first_part(std::size_t index) override;
  std::string part(std::size_t index, const AnswerChoice& choice) override;
  std::string last_part(std::size_t index, const AnswerEnd& end) override;

 protected:
  // The events of a block. `index`: of the block in the answer. Reasoning and text have parts
  // between their first and last event.
  virtual std::string open_reasoning(std::size_t index) = 0;
  virtual std::string reasoning_part(std::size_t index, const std::string& text) = 0;
  virtual std::string close_reasoning(std::size_t index, const std::string& whole) = 0;
  virtual std::string open_text(std::size_t index) = 0;
  virtual std::string text_part(std::size_t index, const AnswerChoice& choice) = 0;
  virtual std::string close_text(std::size_t index, const std::string& whole,
                                 FinishReason reason) = 0;
  virtual std::string call(std::size_t index, const FunctionCall& call) = 0;

  // Whether an answer at once has a block of text.
  static bool has_text(const AnswerChoice& choice, const AnswerEnd& end);
  const AnswerEnd& ended() const { return end_; }

 private:
  enum class Block : std::uint8_t { kNone, kReasoning, kText };
  std::string close(FinishReason reason);
  std::string write_text();

  Block open_ = Block::kNone;
  std::size_t index_ = 0;               // of the block that is open, or of the next one
  std::string written_;                 // of the block that is open
  std::string text_;                    // that is not written yet
  std::vector<GeneratedToken> tokens_;  // of it
  AnswerEnd end_;
};

}  // namespace piton
