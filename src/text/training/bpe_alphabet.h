// The start of byte-pair encoding: the first pieces of a vocabulary, and every word as a sequence
// of pieces of one character.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/huge_pages.h"
#include "text/training/word_counts.h"

namespace piton {

struct BpeTraining {
  std::int64_t vocabulary_size = 0;
  std::int64_t min_frequency = 0;         // of a pair that is merged
  std::vector<std::string> first_pieces;  // ids 0, 1, ...: special tokens, <0x00> .. <0xFF>
  // Words are raw bytes, and the alphabet is all 256 bytes, as spelled in byte_level.h.
  bool byte_level = false;
  // The number of characters to keep: the most frequent ones, of equally frequent ones those with
  // the lower code point. Other characters are removed from the words.
  std::optional<std::int64_t> limit_alphabet;
  std::string continuing_prefix;  // before every piece of a word but its first ("##")
};

// Pieces by id, and ids by piece.
class GrowingVocabulary {
 public:
  // The id of `piece`, which is added if it is new.
  std::int32_t add(std::string piece);
  std::int64_t size() const { return static_cast<std::int64_t>(pieces_.size()); }
  const std::string& piece(std::int32_t id) const { return pieces_[static_cast<std::size_t>(id)]; }
  std::vector<std::string> take() { return std::move(pieces_); }

 private:
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, std::int32_t> ids_;
};

// Words as pieces: word w is lengths[w] pieces, starting at symbols[begins[w]].
struct SymbolWords {
  std::vector<std::int32_t, HugePageAllocator<std::int32_t>> symbols;
  std::vector<std::size_t> begins;
  std::vector<std::uint32_t> lengths;
  std::vector<std::int64_t> counts;

  std::span<std::int32_t> word(std::uint32_t w) {
    return std::span(symbols).subspan(begins[w], lengths[w]);
  }
};

// Adds to `vocabulary`: first pieces; the alphabet by code point; with a continuing prefix, the
// characters that occur after the first one of a word, by code point. (The `tokenizers` library
// adds these in the order of a hash table.) Throws Error(kUsage) if these are more than the
// vocabulary may hold.
SymbolWords spell_words(std::span<const CountedWord> words, const BpeTraining& training,
                        GrowingVocabulary& vocabulary);

}  // namespace piton
