// Names of pre-tokenizers in GGUF files (tokenizer.ggml.pre).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/unicode/scanners.h"

namespace piton {

// How words are cut, and whether a word that is a token is one whatever the merges are.
struct WordCut {
  Scanner scanner;
  bool ignore_merges = false;
  bool nfc = false;  // texts are normalized first; GGUF files do not say so

  bool operator==(const WordCut&) const = default;
};

// "" where llama.cpp has no name for it.
std::string word_cut_name(const WordCut& cut);
// Nothing for names of cuts that Piton has none for.
std::optional<WordCut> word_cut(std::string_view name);

}  // namespace piton
