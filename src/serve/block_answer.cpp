#include "serve/block_answer.h"

#include <utility>

#include "base/trimmed.h"

namespace piton {

bool BlockAnswer::has_text(const AnswerChoice& choice, const AnswerEnd& end) {
  return end.calls.empty() || !trimmed(choice.text).empty();
}

std::string BlockAnswer::first_part(std::size_t) { return ""; }

std::string BlockAnswer::close(FinishReason reason) {
  std::string events;
  if (open_ == Block::kReasoning) events = close_reasoning(index_, written_);
  if (open_ == Block::kText) events = close_text(index_, written_, reason);
  if (open_ != Block::kNone) ++index_;
  open_ = Block::kNone;
  written_.clear();
  return events;
}

std::string BlockAnswer::write_text() {
  std::string events;
  if (open_ != Block::kText) {
    events = close(FinishReason::kStop);
    events += open_text(index_);
    open_ = Block::kText;
  }
  if (!text_.empty() || !tokens_.empty())
    events += text_part(index_, {.text = text_, .tokens = tokens_, .offsets = {}});
  written_ += std::exchange(text_, "");
  tokens_.clear();
  return events;
}

std::string BlockAnswer::part(std::size_t, const AnswerChoice& choice) {
  std::string events;
  if (!choice.reasoning.empty()) {
    if (open_ == Block::kNone) {
      events += open_reasoning(index_);
      tokens_.clear();  // of the word before it
    }
    open_ = Block::kReasoning;
    events += reasoning_part(index_, choice.reasoning);
    written_ += choice.reasoning;
  }
  text_ += choice.text;
  const auto tokens = choice.tokens.subspan(choice.reasoning_tokens);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  const bool is_certain =
      open_ == Block::kText ? !text_.empty() || !tokens_.empty() : !trimmed(text_).empty();
  return is_certain ? events + write_text() : events;
}

std::string BlockAnswer::last_part(std::size_t, const AnswerEnd& end) {
  end_ = end;
  std::string events;
  const bool has_written = open_ == Block::kText;
  if (has_written ? !text_.empty() : end.calls.empty()) events = write_text();
  events += close(end.reason);
  for (const FunctionCall& one : end.calls) events += call(index_++, one);
  return events;
}

}  // namespace piton
