#include "serve/written_text.h"

#include <algorithm>
#include <utility>

#include "generate/constraints/token_bytes.h"
#include "text/unicode/utf8.h"

namespace piton {

namespace {

bool continues(char byte) { return (byte & 0xC0) == 0x80; }

}  // namespace

std::int64_t characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return !continues(c); });
}

std::int64_t TokenPlaces::next(std::int32_t id, std::string_view decoded) {
  const std::int64_t before = end_;
  end_ += characters(decoded);
  const bool was_in_run = std::exchange(in_run_, tokenizer_->open_ended(id));
  if (!was_in_run && !decoded.empty() && begun_.empty()) return before;  // most tokens
  const std::string bytes = tokenizer_->is_special(id) ? "" : token_bytes(*tokenizer_, id);
  const std::string begun = std::exchange(begun_, "");
  if (in_run_) return before;
  // The text of the run came with this token.
  if (was_in_run) return std::max(before, end_ - characters(bytes));
  begun_ = begun + bytes;
  const std::size_t whole = complete_utf8_prefix(begun);
  if (complete_utf8_prefix(begun_) == begun_.size()) begun_.clear();
  if (bytes.empty()) return before;
  // What is certain of it came late: characters, and the replacement of one that does not continue.
  const std::string_view ended =
      std::string_view(begun).substr(0, continues(bytes[0]) ? whole : begun.size());
  return before + characters(replace_bad_utf8(ended));
}

PromptText prompt_text(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  StreamDecoder decoder(tokenizer, {.skip_special_tokens = true});
  TokenPlaces places(tokenizer);
  PromptText prompt;
  for (const std::int32_t id : ids) {
    const std::string part = replace_bad_utf8(decoder.push(id));
    prompt.offsets.push_back(places.next(id, part));
    prompt.text += part;
  }
  prompt.text += replace_bad_utf8(decoder.finish());
  return prompt;
}

WrittenText::WrittenText(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                         std::vector<std::string> stop, std::vector<std::int32_t> ends)
    : decoder_(tokenizer, {.skip_special_tokens = true}),
      places_(tokenizer),
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
  const std::string decoded = replace_bad_utf8(bytes);
  if (!is_none) offsets_.push_back(places_.next(token.id, decoded));
  std::string part = stop_.push(decoded);
  if (stop_.found()) {
    reason_ = FinishReason::kStop;
  } else if (finished()) {
    part += stop_.finish();
  }
  text_ += part;
  if (stop_.found()) {
    const std::int64_t end = characters(text_);
    for (std::int64_t& offset : offsets_) offset = std::min(offset, end);
  }
  return part;
}

}  // namespace piton
