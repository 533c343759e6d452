#include "evaluate/answer_text.h"

#include "tasks/answers/python_text.h"

namespace piton {

std::string answer_after(std::string_view text, std::string_view end,
                         std::span<const std::string> stop) {
  const std::size_t last = text.rfind(end);
  if (last != text.npos) text.remove_prefix(last + end.size());
  text = python_left_stripped(text);
  for (const std::string& word : stop)
    if (!word.empty()) text = text.substr(0, text.find(word));
  return std::string(text);
}

}  // namespace piton
