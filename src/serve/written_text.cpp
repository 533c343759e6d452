#include "serve/written_text.h"

#include <algorithm>

#include "text/unicode/utf8.h"

namespace piton {

WrittenText::WrittenText(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                         std::vector<std::string> stop, std::vector<std::int32_t> ends)
    : decoder_(tokenizer, {.skip_special_tokens = true}),
      stop_(std::move(stop)),
      ends_(std::move(ends)) {
  decoder_.start_after(prompt);
}

std::string WrittenText::push(const GeneratedToken& token, FinishReason finish) {
  if (finished()) return "";
  reason_ = finish;
  const bool is_none = token.id < 0;  // the constraint allows only the empty text
  if (!is_none) tokens_.push_back(token);
  const bool is_end = is_none || std::find(ends_.begin(), ends_.end(), token.id) != ends_.end();
  std::string bytes = is_end ? "" : decoder_.push(token.id);
  if (finished()) bytes += decoder_.finish();
  // Replaced first, so that a stop word is found in the text that the client would see.
  std::string part = stop_.push(replace_bad_utf8(bytes));
  if (stop_.found()) {
    reason_ = FinishReason::kStop;
  } else if (finished()) {
    part += stop_.finish();
  }
  text_ += part;
  return part;
}

}  // namespace piton
