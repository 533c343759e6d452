#include "generate/constraints/token_bytes.h"

#include <algorithm>
#include <cstdlib>

namespace piton {
namespace {

// A byte of a fallback, as vocabularies spell it: <0x0A>.
bool is_fallback_byte(const std::string& piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
}

// Some decoders leave out the space before the first token of a text, so that texts are decoded
// after another one.
class TextsAfter {
 public:
  explicit TextsAfter(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), ids_(tokenizer.encode("a")), before_(tokenizer.decode(ids_)) {
    ids_.push_back(0);
  }

  std::string bytes(std::int32_t id) {
    if (tokenizer_.is_special(id)) return "";
    if (tokenizer_.open_ended(id)) {
      const std::string piece = tokenizer_.piece(id);
      if (is_fallback_byte(piece)) {
        const std::string digits = piece.substr(3, 2);
        return std::string(1, static_cast<char>(std::strtol(digits.c_str(), nullptr, 16)));
      }
    }
    ids_.back() = id;
    const std::string both = tokenizer_.decode(ids_);
    return both.starts_with(before_) ? both.substr(before_.size()) : "";
  }

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;  // the last is the token
  std::string before_;
};

}  // namespace

std::string token_bytes(const Tokenizer& tokenizer, std::int32_t id) {
  return TextsAfter(tokenizer).bytes(id);
}

TokenTree::TokenTree(const Tokenizer& tokenizer, std::int64_t vocabulary)
    : bytes_(static_cast<std::size_t>(vocabulary)) {
  const std::int64_t known = std::min(vocabulary, tokenizer.vocabulary_size());
  TextsAfter texts(tokenizer);
  for (std::int32_t id = 0; id < known; ++id) {
    bytes_[id] = texts.bytes(id);
    if (!bytes_[id].empty()) ids_.push_back(id);
  }
  std::sort(ids_.begin(), ids_.end(), [&](std::int32_t a, std::int32_t b) {
    return bytes_[a] != bytes_[b] ? bytes_[a] < bytes_[b] : a < b;
  });
  std::vector<std::int32_t> path;  // nodes of the bytes of the last id
  const auto leave = [&](std::size_t depth) {
    while (path.size() > depth) {
      nodes_[path.back()].next = static_cast<std::int32_t>(nodes_.size());
      path.pop_back();
    }
  };
  std::string_view last;
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    const std::string& bytes = bytes_[ids_[i]];
    const auto shared = static_cast<std::size_t>(
        std::mismatch(last.begin(), last.end(), bytes.begin(), bytes.end()).first - last.begin());
    leave(shared);
    const auto at = static_cast<std::int32_t>(i);
    for (std::size_t depth = shared; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<std::int32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<std::uint8_t>(bytes[depth]),
                        .depth = static_cast<std::int32_t>(depth),
                        .first_id = at,
                        .last_id = at});
    }
    nodes_[path.back()].last_id = at + 1;
    last = bytes;
  }
  leave(0);
}

}  // namespace piton
