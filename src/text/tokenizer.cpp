#include "text/tokenizer.h"

namespace piton {

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<std::int32_t> ids;
  encode(text, options, ids);
  return ids;
}

std::size_t complete_utf8_prefix(std::string_view text) {
  // At most three bytes can be the start of an unfinished character.
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto lead = static_cast<unsigned char>(text[text.size() - back]);
    if ((lead & 0xC0) == 0x80) continue;  // a continuation byte: look further back for its lead
    std::size_t length = 1;
    if (lead >= 0xC2 && lead <= 0xDF) length = 2;
    if (lead >= 0xE0 && lead <= 0xEF) length = 3;
    if (lead >= 0xF0 && lead <= 0xF4) length = 4;
    if (length <= back) return text.size();
    if (back >= 2) {
      // The second byte decides whether the lead can still succeed (no surrogates, no overlong
      // forms, nothing above U+10FFFF).
      const auto second = static_cast<unsigned char>(text[text.size() - back + 1]);
      const bool possible = !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second > 0x9F) &&
                            !(lead == 0xF0 && second < 0x90) && !(lead == 0xF4 && second > 0x8F);
      if (!possible) return text.size();
    }
    return text.size() - back;
  }
  return text.size();
}

void StreamDecoder::start_after(std::span<const std::int32_t> ids) {
  window_.assign(ids.begin(), ids.end());
  shown_ = complete_utf8_prefix(tokenizer_->decode(window_, options_));
}

std::string StreamDecoder::push(std::int32_t id) {
  window_.push_back(id);
  if (tokenizer_->open_ended(id)) return "";
  const std::string text = tokenizer_->decode(window_, options_);
  const std::size_t end = complete_utf8_prefix(text);
  if (end < text.size() || end <= shown_) return "";
  std::string part = text.substr(shown_);
  // Keep the last ids that decode to some text as context: some decoders treat the start of a text
  // differently, and may strip all of an id there.
  for (std::size_t kept = 1; kept <= window_.size(); ++kept) {
    const auto context = std::span(window_).last(kept);
    shown_ = tokenizer_->decode(context, options_).size();
    if (shown_ == 0) continue;
    window_.assign(context.begin(), context.end());
    break;
  }
  return part;
}

std::string StreamDecoder::finish() {
  const std::string text = tokenizer_->decode(window_, options_);
  std::string part = text.size() > shown_ ? text.substr(shown_) : "";
  window_.clear();
  shown_ = 0;
  return part;
}

}  // namespace piton
