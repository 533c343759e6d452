// The precompiled map of characters in SentencePiece models (nmt_nfkc and the like; also
// "precompiled_charsmap" in tokenizer.json).
//
//   bytes       field
//   0..3        u32, little-endian: bytes of the trie, t
//   4..3+t      the trie: 32-bit units of a double array (darts-clone)
//   4+t..       the replacements, each ended by a zero byte; the trie's values are offsets into it
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

class Charsmap {
 public:
  // An empty map, which replaces nothing.
  Charsmap() = default;
  // Throws Error(kData), beginning with `where`, if the sizes disagree.
  Charsmap(std::string_view bytes, const std::string& where);

  bool empty() const { return units_.empty(); }

  struct Match {
    std::size_t length = 0;  // bytes of the text that are replaced; 0: no match
    std::string_view replacement;
  };
  // The longest prefix of `text` that the map replaces.
  Match longest(std::string_view text) const { return find(text, true); }
  // The shortest such prefix.
  Match shortest(std::string_view text) const { return find(text, false); }

 private:
  Match find(std::string_view text, bool longest) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

}  // namespace piton
