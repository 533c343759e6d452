#include "serve/chat/tool_calls.h"

#include <algorithm>
#include <utility>

#include "base/trimmed.h"
#include "generate/partial_word.h"

namespace piton {
namespace {

// The first opening mark in a text.
struct FoundMarks {
  std::size_t at = std::string_view::npos;
  const CallMarks* marks = nullptr;
};

FoundMarks first_marks(std::string_view text) {
  FoundMarks first;
  for (const CallMarks& marks : kCallMarks) {
    const std::size_t at = text.find(marks.open);
    if (at < first.at) first = {at, &marks};
  }
  return first;
}

}  // namespace

std::string ToolCallText::push(std::string_view part) {
  if (tools_.empty()) return std::string(part);
  held_ += part;
  if (!began_ && may_be_calls_alone(held_)) return "";
  std::size_t certain = first_marks(held_).at;
  if (certain == held_.npos) {
    std::size_t withheld = 0;
    for (const CallMarks& marks : kCallMarks)
      withheld = std::max(withheld, beginning_of(held_, marks.open));
    certain = held_.size() - withheld;
  }
  std::string text = held_.substr(0, certain);
  held_.erase(0, certain);
  began_ = began_ || !text.empty();
  return text;
}

std::string ToolCallText::finish() {
  if (!began_) {
    calls_ = calls_alone(held_, tools_);
    if (!calls_.empty()) held_.clear();
  }
  std::string text;
  std::string_view rest = held_;
  while (true) {
    const FoundMarks found = first_marks(rest);
    if (found.marks == nullptr) break;
    const std::string_view inner = rest.substr(found.at + found.marks->open.size());
    const std::size_t end = std::min(inner.find(found.marks->close), inner.size());
    const std::vector<FunctionCall> calls =
        marked_calls(*found.marks, inner.substr(0, end), tools_);
    if (calls.empty()) break;
    // White space between calls is no text.
    const std::string_view before = rest.substr(0, found.at);
    if (calls_.empty() || !trimmed(before).empty()) text += before;
    calls_.insert(calls_.end(), calls.begin(), calls.end());
    rest = inner.substr(std::min(end + found.marks->close.size(), inner.size()));
  }
  if (calls_.empty() || !trimmed(rest).empty()) text += rest;
  held_.clear();
  return text;
}

}  // namespace piton
