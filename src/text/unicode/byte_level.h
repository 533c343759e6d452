// The byte-level alphabet of GPT-2: a printable character for each byte, so that a vocabulary file
// can spell any bytes. Bytes 33-126, 161-172 and 174-255 are spelled as their Latin-1 characters,
// the other 68, in order, as U+0100 and following: space is "Ġ" (U+0120), newline "Ċ".
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace piton {

class ByteAlphabet {
 public:
  ByteAlphabet();

  // The characters that spell `bytes`.
  std::string spell(std::string_view bytes) const;
  // The bytes that `text` spells; nullopt if a character is not in the alphabet.
  std::optional<std::string> bytes(std::string_view text) const;

 private:
  std::array<std::string, 256> spelling_;
  std::array<std::int16_t, 0x144> byte_;  // by code point; -1: not in the alphabet
};

}  // namespace piton
