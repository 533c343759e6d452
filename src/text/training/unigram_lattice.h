// The ways to cut a word into pieces of a unigram vocabulary, and what they weigh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/trie.h"

namespace piton {

struct ScoredPiece {
  std::string text;
  double score = 0;  // log-probability
};

// Pieces while they are chosen. Piece 0 stands for every character that has no piece; its text is
// never looked for and its score is 10 below the lowest (as SentencePiece).
class UnigramPieces {
 public:
  explicit UnigramPieces(std::vector<ScoredPiece> pieces);

  const std::vector<ScoredPiece>& pieces() const { return pieces_; }
  std::int64_t size() const { return static_cast<std::int64_t>(pieces_.size()); }
  double score(std::int32_t id) const { return scores_[static_cast<std::size_t>(id)]; }
  double lowest_score() const { return lowest_; }
  double unknown_score() const { return lowest_ - kUnknownPenalty; }
  const Trie& trie() const { return trie_; }

 private:
  static constexpr double kUnknownPenalty = 10;
  std::vector<ScoredPiece> pieces_;
  std::vector<double> scores_;  // the same, close together
  Trie trie_;
  double lowest_ = 0;
};

// Keeps its memory from word to word. One for each thread.
class UnigramLattice {
 public:
  explicit UnigramLattice(const UnigramPieces& pieces) : pieces_(&pieces) {}

  // What follows is about this word, which is not empty.
  void set(std::string_view word);

  // Adds to `expected`, by piece, how often each is expected in `count` such words under all
  // cuttings. In logarithms, as the `tokenizers` library adds them up.
  void add_expected(double count, std::vector<double>& expected);

  // The pieces of the likeliest cutting, the last one first. Of equal cuttings the one whose last
  // piece begins earlier, and so on. `whole` false: without the piece that is the whole word.
  struct Path {
    std::vector<std::int32_t> pieces;
    double score = 0;
  };
  void best(bool whole, Path& path);

 private:
  struct Node {
    std::uint32_t begin;
    std::uint32_t end;
    std::int32_t piece;
    double score;
  };

  const UnigramPieces* pieces_;
  std::size_t size_ = 0;
  std::vector<Node> nodes_;  // by begin, then by end
  std::vector<double> forward_;
  std::vector<double> backward_;
  std::vector<std::int32_t> last_;  // the node before each place on the best path; -1: none yet
};

}  // namespace piton
