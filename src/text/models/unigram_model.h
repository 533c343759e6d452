// The unigram language model (Kudo 2018, arXiv:1804.10959): of all ways to cut a word into pieces,
// the one with the largest sum of scores (log-probabilities); Viterbi from left to right over
// characters. A character that no piece of one character covers may be unknown, at ten below the
// worst score.
//
// Sums run in double, as in `tokenizers`: ties are decided by rounding. SentencePiece sums in float
// (sentencepiece_unigram.h).
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
  std::vector<std::int32_t> byte_ids_;  // of <0xNN>; empty unless all are there and wanted
  std::optional<std::int32_t> unknown_;
  double unknown_score_ = 0;
  bool fuse_unknown_ = true;
  bool byte_fallback_ = false;
};

}  // namespace piton
