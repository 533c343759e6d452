// The unigram language model (Kudo 2018, arXiv:1804.10959): of all ways to split a word into
// pieces, takes the one with the largest sum of scores (log-probabilities), by Viterbi search over
// characters from left to right. A character that is not itself a piece may be unknown, with a
// score ten below the worst.
//
// Sums are in double, as in `tokenizers`, because rounding decides ties. SentencePiece sums in
// float (sentencepiece_unigram.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/models/trie.h"
#include "text/models/word_model.h"

namespace piton {

struct UnigramFacts {
  std::vector<std::pair<std::string, double>> pieces;  // by id
  std::optional<std::int32_t> unknown;
  bool byte_fallback = false;
  bool fuse_unknown = true;
};

class UnigramModel final : public WordModel {
 public:
  // Throws Error(kData), beginning with `where`: unknown id out of range, scores not finite.
  UnigramModel(const UnigramFacts& facts, const std::string& where);

  std::unique_ptr<Scratch> make_scratch() const override;
  void encode(std::string_view word, Scratch& scratch,
              std::vector<std::int32_t>& out) const override;

 private:
  class UnigramScratch;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& out) const;

  Trie trie_;
  std::vector<double> scores_;
  std::vector<std::int32_t>
      byte_ids_;  // ids of <0xNN>, -1 where missing; empty without byte fallback
  std::optional<std::int32_t> unknown_;
  double unknown_score_ = 0;
  bool fuse_unknown_ = true;
  bool byte_fallback_ = false;
};

}  // namespace piton
