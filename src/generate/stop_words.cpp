#include "generate/stop_words.h"

#include <algorithm>
#include <utility>

#include "generate/partial_word.h"

namespace piton {

std::string StopWords::push(std::string_view text) {
  if (found()) return "";
  held_ += text;
  std::size_t first = std::string::npos;
  for (std::size_t i = 0; i < words_.size(); ++i) {
    const std::size_t at = held_.find(words_[i]);
    if (at >= first) continue;
    first = at;
    found_ = i;
  }
  if (found()) {
    held_.resize(first);
    return std::exchange(held_, "");
  }
  std::size_t withheld = 0;  // bytes at the end that begin a word
  for (const std::string& word : words_) withheld = std::max(withheld, beginning_of(held_, word));
  const std::string certain = held_.substr(0, held_.size() - withheld);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopWords::finish() { return std::exchange(held_, ""); }

}  // namespace piton
