// All segmentations of a word into pieces of a unigram vocabulary, with their probabilities.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/trie.h"

namespace piton {

struct ScoredPiece {
  std::string text;
  double score = 0;  // log-probability
};

// The candidate pieces during training. Piece 0 is for every character without a piece: its text is
// not searched for, and its score is 10 below the lowest score (as in SentencePiece).
class UnigramPieces {
 public:
  explicit UnigramPieces(std::vector<ScoredPiece> pieces);

  const std::vector<ScoredPiece>& pieces() const { return pieces_; }
  std::int64_t size() const { return static_cast<std::int64_t>(pieces_.size()); }
  double score(std::int32_t id) const { return scores_[static_cast<std::size_t>(id)]; }
  double lowest_score() const { return lowest_; }
  double unknown_score() const { return lowest_ - kUnknownPenalty; }

  // Makes the trie, once; UnigramLattice::set(word) searches in it. Not while threads use the
  // pieces.
  void make_trie();
  bool has_trie() const { return has_trie_; }
  const Trie& trie() const { return trie_; }

 private:
  static constexpr double kUnknownPenalty = 10;
  std::vector<ScoredPiece> pieces_;
  std::vector<double> scores_;  // scores of pieces_, contiguous for speed
  Trie trie_;
  bool has_trie_ = false;
  double lowest_ = 0;
};

// A piece at its place in a word.
struct LatticeNode {
  std::uint32_t begin = 0;   // byte of the word
  std::uint16_t length = 0;  // bytes
  bool character = false;    // one character
  std::int32_t piece = 0;    // 0: a character without a piece
};

// Reuses its memory for all words. Each thread has its own.
class UnigramLattice {
 public:
  explicit UnigramLattice(const UnigramPieces& pieces) : pieces_(&pieces) {}

  // Sets the word for the other functions. It must not be empty. The pieces must have their trie.
  void set(std::string_view word);
  // The same for a word of `size` bytes with nodes() of an earlier time, renumbered since.
  void set(std::size_t size, std::span<const LatticeNode> nodes);
  // Of the word that is set; by begin.
  std::span<const LatticeNode> nodes() const { return nodes_; }

  // Adds to `expected` [pieces] the expected number of each piece in `count` such words, over all
  // segmentations. Sums are in logarithms, as in the `tokenizers` library.
  void add_expected(double count, std::vector<double>& expected);

  // The pieces of the most likely segmentation, the last piece first. Of equal segmentations, the
  // one whose last piece begins earlier, then its second last, and so on. With `whole` false, the
  // piece that is the whole word is not used.
  struct Path {
    std::vector<std::int32_t> pieces;
    double score = 0;
  };
  void best(bool whole, Path& path);

 private:
  double score_of(const LatticeNode& node) const {
    return node.piece == 0 ? pieces_->unknown_score() : pieces_->score(node.piece);
  }

  const UnigramPieces* pieces_;
  std::size_t size_ = 0;
  std::vector<LatticeNode> nodes_;
  std::vector<double> forward_;
  std::vector<double> backward_;
  std::vector<std::int32_t> last_;  // the node before each place on the best path; -1: none yet
};

}  // namespace piton
