// WordPiece (Schuster & Nakajima 2012; Devlin et al. 2018, arXiv:1810.04805): takes the longest
// piece that begins the word, then the longest that continues it ("##..."), and so on. A word that
// cannot be completed, or has too many characters, is one unknown token.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "text/models/trie.h"
#include "text/models/word_model.h"

namespace piton {

struct WordPieceFacts {
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  std::string unknown = "[UNK]";
  std::string continuing_prefix = "##";
  std::int64_t max_characters = 100;
};

class WordPieceModel final : public WordModel {
 public:
  // Throws Error(kData), beginning with `where`: unknown token missing, id out of range.
  WordPieceModel(const WordPieceFacts& facts, const std::string& where);
  void encode(std::string_view word, Scratch& scratch,
              std::vector<std::int32_t>& out) const override;

 private:
  Trie trie_;
  std::int32_t continuing_ = Trie::kNone;  // the node after the prefix
  std::int32_t unknown_ = 0;
  std::int64_t max_characters_ = 100;
};

// WordLevel: a word is one token or unknown.
class WordLevelModel final : public WordModel {
 public:
  // Throws as WordPieceModel. Unknown words are dropped if `unknown` is not in the vocabulary.
  WordLevelModel(const std::vector<std::pair<std::string, std::int32_t>>& vocabulary,
                 const std::string& unknown, const std::string& where);
  void encode(std::string_view word, Scratch& scratch,
              std::vector<std::int32_t>& out) const override;

 private:
  std::optional<std::int32_t> unknown_;
};

}  // namespace piton
