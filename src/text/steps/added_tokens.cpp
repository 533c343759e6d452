#include "text/steps/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "text/models/vocabulary.h"
#include "text/unicode/characters.h"

namespace piton {

void check_added_token(const AddedToken& token, std::int64_t pieces, const std::string& where) {
  const std::int64_t largest = PieceVocabulary::largest_id(static_cast<std::size_t>(pieces));
  if (token.id > largest) {
    throw Error(Fault::kData, "{}: the id of \"{}\" is out of range: got {}, wanted 0 .. {}", where,
                token.content, token.id, largest);
  }
  if (token.content.size() > PieceVocabulary::kMaxPieceBytes) {
    throw Error(Fault::kData, "{}: the token of id {} has {} bytes, wanted at most {}", where,
                token.id, token.content.size(), PieceVocabulary::kMaxPieceBytes);
  }
}

void AddedTokenMatcher::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  std::int32_t node = 0;
  for (const char byte : pattern) {
    const auto key = static_cast<unsigned char>(byte);
    auto& children = nodes_[static_cast<std::size_t>(node)].children;
    const auto found = std::find_if(children.begin(), children.end(),
                                    [key](const auto& child) { return child.first == key; });
    std::int32_t next = 0;
    if (found != children.end()) {
      next = found->second;
    } else {
      next = static_cast<std::int32_t>(nodes_.size());
      children.emplace_back(key, next);
      if (node == 0) roots_[key] = next;
      nodes_.emplace_back();
    }
    node = next;
  }
  auto& end = nodes_[static_cast<std::size_t>(node)];
  if (end.token >= 0) return;  // the first of two equal patterns is kept
  end.token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  if (!token.special) has_plain_ = true;
}

std::pair<std::size_t, std::int32_t> AddedTokenMatcher::longest(std::string_view text) const {
  std::pair<std::size_t, std::int32_t> best{0, -1};
  std::int32_t node = roots_[static_cast<unsigned char>(text[0])];
  for (std::size_t length = 1; node != 0; ++length) {
    const Node& here = nodes_[static_cast<std::size_t>(node)];
    if (here.token >= 0) best = {length, here.token};
    if (length == text.size()) break;
    const auto key = static_cast<unsigned char>(text[length]);
    node = 0;
    for (const auto& [byte, child] : here.children) {
      if (byte == key) node = child;
    }
  }
  return best;
}

void AddedTokenMatcher::split(std::string_view text, bool parse_special,
                              std::vector<Part>& parts) const {
  std::size_t done = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    if (roots_[static_cast<unsigned char>(text[at])] == 0) {
      ++at;
      continue;
    }
    const auto [length, index] = longest(text.substr(at));
    if (index < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    std::size_t begin = at;
    std::size_t end = at + length;
    at = end;
    if (token.special && !parse_special) continue;
    if (token.single_word) {
      const bool word_before =
          begin > 0 && is_word_character(decode_utf8_back(text.substr(0, begin)).value);
      const bool word_after = end < text.size() && is_word_character(decode_utf8(text, end).value);
      if (word_before || word_after) continue;
    }
    if (token.lstrip) {
      while (begin > done) {
        const Utf8Char c = decode_utf8_back(text.substr(done, begin - done));
        if (!is_white_space(c.value)) break;
        begin -= c.length;
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const Utf8Char c = decode_utf8(text, end);
        if (!is_white_space(c.value)) break;
        end += c.length;
      }
    }
    if (begin > done) parts.push_back({-1, done, begin});
    parts.push_back({token.id, std::max(begin, done), end});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
}

}  // namespace piton
