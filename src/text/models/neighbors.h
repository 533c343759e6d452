// Finds where a text may be cut without changing its byte-pair encoding: between two characters
// that are adjacent in no piece, since no merge crosses there. A LLaMA text, which is a single word
// for its rules, is cut before each "▁", Chinese text nearly everywhere.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace piton {

class Neighbors {
 public:
  // Adds the pairs of neighbors in `piece`, which may be any bytes. If a piece has only a part of a
  // character, the two bytes at the border represent all characters that end and begin with them.
  void add(std::string_view piece);
  // Returns the bytes of `text` (not empty) before the first cut. Cuts only next to a non-ASCII
  // character, and never next to bytes that are not a character.
  std::size_t first_part(std::string_view text) const;

 private:
  bool together(char32_t a, char32_t b) const;
  void add_characters(char32_t a, char32_t b);
  void insert(std::uint64_t key);

  std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(64);  // 0 is free
  std::size_t used_ = 0;
  std::bitset<65536> borders_;  // [last byte * 256 + first byte], for parts of characters
};

}  // namespace piton
