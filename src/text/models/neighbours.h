// Where a text may be cut without changing its byte-pair encoding: between two characters that
// are adjacent in no piece, since no merge can ever cross there. So a LLaMA text, one
// word for its rules, is cut before each "▁", and Chinese nearly everywhere.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace piton {

class Neighbours {
 public:
  // Learns the neighbors inside `piece`, which may be any bytes: where a piece holds a part of a
  // character, the two bytes at the border represent all characters that they end and begin.
  void add(std::string_view piece);
  // Bytes of the part of `text` (not empty) before the first cut. Only beside a character above
  // ASCII is a cut looked for, and never beside bytes that are no character.
  std::size_t first_part(std::string_view text) const;

 private:
  bool together(char32_t a, char32_t b) const;
  void add_characters(char32_t a, char32_t b);
  void insert(std::uint64_t key);

  std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(64);  // 0 is free
  std::size_t used_ = 0;
  std::bitset<65536> borders_;  // last byte * 256 + first byte, where a part of a character is
};

}  // namespace piton
