// The byte-level alphabet of GPT-2: a printable character for each byte, so that a vocabulary file
// can spell any bytes. Bytes 33-126, 161-172 and 174-255 are themselves (as Latin-1); the other 68
// are U+0100 and up, in order: space is "Ġ" (U+0120), newline "Ċ".
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
  // The bytes that `text` spells; none if a character is not of the alphabet.
  std::optional<std::string> bytes(std::string_view text) const;

 private:
  std::array<std::string, 256> spelling_;
  std::array<std::int16_t, 0x144> byte_;  // by code point, -1 where none
};

}  // namespace piton
