#include "serve/chat/reasoning_text.h"

#include <algorithm>

#include "base/trimmed.h"
#include "generate/partial_word.h"

namespace piton {

ReasoningPlace reasoning_after(std::string_view prompt, std::string_view source) {
  if (source.find(kReasoningOpen) == source.npos && source.find(kReasoningClose) == source.npos)
    return ReasoningPlace::kNone;
  return trimmed(prompt).ends_with(kReasoningOpen) ? ReasoningPlace::kInside
                                                   : ReasoningPlace::kMayBegin;
}

bool ReasoningText::open() {
  const std::size_t first = held_.find_first_not_of(kWhiteSpace);
  if (first == held_.npos) return false;
  const std::string_view text = std::string_view(held_).substr(first);
  if (text.starts_with(kReasoningOpen)) {
    held_.erase(0, first + kReasoningOpen.size());
    place_ = ReasoningPlace::kInside;
    return true;
  }
  if (kReasoningOpen.starts_with(text)) return false;
  place_ = ReasoningPlace::kNone;
  skips_space_ = false;  // of an answer without reasoning it is a part
  return true;
}

void ReasoningText::reason(Parts& parts) {
  if (skips_space_) held_.erase(0, std::min(held_.find_first_not_of(kWhiteSpace), held_.size()));
  if (held_.empty()) return;
  const std::size_t close = held_.find(kReasoningClose);
  std::size_t certain = close;
  if (close == held_.npos) certain = held_.size() - beginning_of(held_, kReasoningClose);
  // The space before the end, or before what may be it.
  const std::size_t last = std::string_view(held_).substr(0, certain).find_last_not_of(kWhiteSpace);
  const std::size_t words = last == held_.npos ? 0 : last + 1;
  parts.reasoning += held_.substr(0, words);
  skips_space_ = skips_space_ && words == 0;
  if (close == held_.npos) {
    held_.erase(0, words);
    return;
  }
  held_.erase(0, close + kReasoningClose.size());
  place_ = ReasoningPlace::kNone;
  skips_space_ = true;
}

ReasoningText::Parts ReasoningText::push(std::string_view part) {
  Parts parts;
  held_ += part;
  if (place_ == ReasoningPlace::kMayBegin && !open()) return parts;
  if (is_inside()) reason(parts);
  if (is_inside()) return parts;
  if (skips_space_) held_.erase(0, std::min(held_.find_first_not_of(kWhiteSpace), held_.size()));
  skips_space_ = skips_space_ && held_.empty();
  parts.answer += held_;
  held_.clear();
  return parts;
}

ReasoningText::Parts ReasoningText::finish() {
  Parts parts;
  (is_inside() ? parts.reasoning : parts.answer) = std::move(held_);
  held_.clear();
  return parts;
}

}  // namespace piton
