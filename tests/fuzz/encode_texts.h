// Runs a tokenizer on texts; used by every fuzzer of tokenizer files after a successful read.
#pragma once

#include <cstdlib>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace piton {

// Encodes and decodes `own` (the file itself, used as a text) and some other texts. Checks that all
// ids are in the vocabulary, and that encoding again gives the same ids. If `streams`, also checks
// that streaming decodes to the same text; some decoders of tokenizer.json need the whole text.
inline void encode_texts(const Tokenizer& tokenizer, std::string_view own, bool streams = true) {
  const std::string letters(200, 'a');
  for (const std::string_view text :
       {own.substr(0, 300),
        std::string_view("Hello  w\xC3\xB6rld \xE4\xB8\xAD\xE6\x96\x87 123\n\xFF"),
        std::string_view(letters)}) {
    for (const bool special : {false, true}) {
      const auto ids = tokenizer.encode(text, {special, special});
      if (ids != tokenizer.encode(text, {special, special})) std::abort();
      for (const auto id : ids) {
        if (id < 0 || id >= tokenizer.vocabulary_size()) std::abort();
      }
      const std::string decoded = tokenizer.decode(ids);
      if (special) continue;
      StreamDecoder stream(tokenizer);
      std::string parts;
      for (const auto id : ids) parts += stream.push(id);
      if (parts + stream.finish() != decoded && streams) std::abort();
    }
  }
}

}  // namespace piton
