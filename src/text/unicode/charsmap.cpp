#include "text/unicode/charsmap.h"

#include <cstring>

#include "base/error.h"

namespace piton {

Charsmap::Charsmap(std::string_view bytes, const std::string& where) {
  if (bytes.empty()) return;
  std::uint32_t trie_bytes = 0;
  if (bytes.size() >= 4) std::memcpy(&trie_bytes, bytes.data(), 4);
  if (bytes.size() < 4 || trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > bytes.size() - 4) {
    throw Error(Fault::kData,
                "{}: the precompiled map of characters is damaged: {} bytes hold no trie of {}; "
                "fetch the file again",
                where, bytes.size(), trie_bytes);
  }
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), bytes.data() + 4, trie_bytes);
  replacements_ = bytes.substr(4 + trie_bytes);
  replacements_.push_back('\0');
}

Charsmap::Match Charsmap::find(std::string_view text, bool longest) const {
  if (units_.empty()) return {};
  const auto offset = [](std::uint32_t unit) { return unit >> 10 << ((unit & 0x200U) >> 6); };
  Match match;
  std::uint32_t node = offset(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::uint32_t byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (node >= units_.size() || (units_[node] & 0x800000FFU) != byte) break;
    const std::uint32_t unit = units_[node];
    node ^= offset(unit);
    if ((unit & 0x100U) == 0) continue;
    if (node >= units_.size()) break;
    const std::uint32_t value = units_[node] & 0x7FFFFFFFU;
    if (value >= replacements_.size()) break;
    match = {i + 1, std::string_view(replacements_.c_str() + value)};
    if (!longest) break;
  }
  return match;
}

}  // namespace piton
