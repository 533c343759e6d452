// Names of pre-tokenizers in GGUF files (tokenizer.ggml.pre).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/unicode/scanners.h"

namespace piton {

struct WordCut {
  Scanner scanner;             // how text is split into words
  bool ignore_merges = false;  // a word that is a token is not merged from parts
  bool nfc = false;            // text is normalized first; GGUF files have no key for it

  bool operator==(const WordCut&) const = default;
};

// "" if llama.cpp has no name for it.
std::string word_cut_name(const WordCut& cut);
// Nullopt for the name of a pre-tokenizer that Piton does not have.
std::optional<WordCut> word_cut(std::string_view name);

}  // namespace piton
