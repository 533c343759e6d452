#include "data/instruct/special_texts.h"

#include <algorithm>

namespace piton {

SpecialTexts::SpecialTexts(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {
  for (std::int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    std::string text = tokenizer.piece(id);
    if (text.empty()) continue;
    begins_[static_cast<unsigned char>(text[0])] = true;
    texts_.push_back(std::move(text));
  }
  std::stable_sort(texts_.begin(), texts_.end(),
                   [](const std::string& a, const std::string& b) { return a.size() > b.size(); });
}

std::string_view SpecialTexts::found_at(std::string_view text, std::size_t at) const {
  for (const std::string& special : texts_) {
    if (text.substr(at).starts_with(special)) return special;
  }
  return "";
}

bool SpecialTexts::occur_in(std::string_view text) const {
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (begins_[static_cast<unsigned char>(text[at])] && !found_at(text, at).empty()) return true;
  }
  return false;
}

void SpecialTexts::encode(const std::vector<ElementPart>& parts,
                          std::vector<std::int32_t>& out) const {
  const bool forged = std::any_of(parts.begin(), parts.end(), [&](const ElementPart& part) {
    return part.is_content && occur_in(part.text);
  });
  if (forged) return encode_apart(parts, out);
  std::string text;
  for (const ElementPart& part : parts) text += part.text;
  if (!text.empty()) tokenizer_->encode(text, {.parse_special_tokens = true}, out);
}

// Cuts the element at the template's special tokens. What is between them is plain text.
void SpecialTexts::encode_apart(const std::vector<ElementPart>& parts,
                                std::vector<std::int32_t>& out) const {
  std::string plain;
  const auto close = [&] {
    if (!plain.empty()) tokenizer_->encode(plain, {}, out);
    plain.clear();
  };
  for (const ElementPart& part : parts) {
    for (std::size_t at = 0; at < part.text.size();) {
      const std::string_view special = part.is_content ? "" : found_at(part.text, at);
      if (special.empty()) {
        plain += part.text[at++];
        continue;
      }
      close();
      out.push_back(*tokenizer_->id_of(special));
      at += special.size();
    }
  }
  close();
}

}  // namespace piton
