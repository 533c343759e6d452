#include "generate/constraints/token_bytes.h"

#include <algorithm>
#include <cstdlib>

namespace piton {
namespace {

// A byte of a fallback, as vocabularies spell it: <0x0A>.
bool is_fallback_byte(const std::string& piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
}

}  // namespace

std::string token_bytes(const Tokenizer& tokenizer, std::int32_t id) {
  if (tokenizer.is_special(id)) return "";
  const std::string piece = tokenizer.piece(id);
  if (tokenizer.open_ended(id) && is_fallback_byte(piece)) {
    return std::string(1, static_cast<char>(std::strtol(piece.substr(3, 2).c_str(), nullptr, 16)));
  }
  // Some decoders leave out the space before the first token of a text, so that there is one
  // before it.
  static constexpr std::string_view kBefore = "a";
  std::vector<std::int32_t> ids = tokenizer.encode(kBefore);
  const std::string before = tokenizer.decode(ids);
  ids.push_back(id);
  const std::string both = tokenizer.decode(ids);
  return both.starts_with(before) ? both.substr(before.size()) : "";
}

TokenTree::TokenTree(const Tokenizer& tokenizer, std::int64_t vocabulary)
    : bytes_(static_cast<std::size_t>(vocabulary)) {
  const std::int64_t known = std::min(vocabulary, tokenizer.vocabulary_size());
  for (std::int32_t id = 0; id < known; ++id) {
    bytes_[id] = token_bytes(tokenizer, id);
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
