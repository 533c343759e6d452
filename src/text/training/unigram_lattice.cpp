#include "text/training/unigram_lattice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

constexpr double kNothing = -std::numeric_limits<double>::infinity();

// log(exp(a) + exp(b)); what is 50 below the other adds nothing.
double log_sum(double a, double b) {
  if (a == kNothing) return b;
  const double low = std::min(a, b);
  const double high = std::max(a, b);
  if (high > low + 50) return high;
  return high + std::log(std::exp(low - high) + 1);
}

}  // namespace

UnigramPieces::UnigramPieces(std::vector<ScoredPiece> pieces) : pieces_(std::move(pieces)) {
  PITON_ASSERT(pieces_.size() > 1);
  for (const ScoredPiece& piece : pieces_) scores_.push_back(piece.score);
  lowest_ = std::numeric_limits<double>::infinity();
  for (std::size_t id = 1; id < pieces_.size(); ++id) {
    lowest_ = std::min(lowest_, pieces_[id].score);
  }
}

void UnigramPieces::make_trie() {
  if (has_trie_) return;
  for (std::size_t id = 1; id < pieces_.size(); ++id) {
    trie_.add(pieces_[id].text, static_cast<std::int32_t>(id));
  }
  has_trie_ = true;
}

void UnigramLattice::set(std::string_view word) {
  PITON_ASSERT(pieces_->has_trie());
  const Trie& trie = pieces_->trie();
  size_ = word.size();
  nodes_.clear();
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t length = decode_utf8(word, begin).length;
    bool covered = false;
    std::size_t end = begin;
    for (Trie::Step at = trie.step_to(Trie::kRoot, word[begin]); at.node != Trie::kNone;
         at = end < word.size() ? trie.step_to(at.node, word[end]) : Trie::Step()) {
      ++end;
      if (at.value == Trie::kNone) continue;
      covered = covered || end - begin == length;
      nodes_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint16_t>(end - begin),
                        end - begin == length, at.value});
    }
    if (!covered) {
      nodes_.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint16_t>(length),
                        /*character=*/true, 0});
    }
    begin += length;
  }
}

void UnigramLattice::set(std::size_t size, std::span<const LatticeNode> nodes) {
  size_ = size;
  nodes_.assign(nodes.begin(), nodes.end());
}

void UnigramLattice::add_expected(double count, std::vector<double>& expected) {
  forward_.assign(size_ + 1, kNothing);
  backward_.assign(size_ + 1, kNothing);
  forward_[0] = 0;
  for (const LatticeNode& node : nodes_) {
    double& after = forward_[node.begin + node.length];
    after = log_sum(after, score_of(node) + forward_[node.begin]);
  }
  backward_[size_] = 0;
  // Pieces that begin at one place are added up from the shortest on.
  for (std::size_t last = nodes_.size(); last > 0;) {
    std::size_t first = last;
    while (first > 0 && nodes_[first - 1].begin == nodes_[last - 1].begin) --first;
    for (std::size_t i = first; i < last; ++i) {
      const LatticeNode& node = nodes_[i];
      double& before = backward_[node.begin];
      before = log_sum(before, score_of(node) + backward_[node.begin + node.length]);
    }
    last = first;
  }
  const double all = forward_[size_];
  for (const LatticeNode& node : nodes_) {
    const double share =
        forward_[node.begin] + score_of(node) + backward_[node.begin + node.length] - all;
    expected[static_cast<std::size_t>(node.piece)] += count * std::exp(share);
  }
}

void UnigramLattice::best(bool whole, Path& path) {
  forward_.assign(size_ + 1, 0);
  last_.assign(size_ + 1, -1);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const LatticeNode& node = nodes_[i];
    const std::size_t end = node.begin + node.length;
    if (!whole && node.begin == 0 && end == size_) continue;
    if (node.begin > 0 && last_[node.begin] < 0) continue;
    const double score = forward_[node.begin] + score_of(node);
    if (last_[end] >= 0 && score <= forward_[end]) continue;
    forward_[end] = score;
    last_[end] = static_cast<std::int32_t>(i);
  }
  path.pieces.clear();
  path.score = forward_[size_];
  for (std::size_t end = size_; end > 0 && last_[end] >= 0;) {
    const LatticeNode& node = nodes_[static_cast<std::size_t>(last_[end])];
    path.pieces.push_back(node.piece);
    end = node.begin;
  }
}

}  // namespace piton
