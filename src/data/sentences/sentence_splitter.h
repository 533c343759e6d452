// Splits texts into sentences.
#pragma once

#include <string_view>
#include <vector>

namespace piton {

class SentenceSplitter {
 public:
  virtual ~SentenceSplitter() = default;
  // Appends the sentences of `text` (UTF-8) as views into it. Thread-safe.
  virtual void split(std::string_view text, std::vector<std::string_view>& sentences) const = 0;
};

}  // namespace piton
