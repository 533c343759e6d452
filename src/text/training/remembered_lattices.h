// The lattices of words, remembered between the rounds of unigram training: pieces are only
// removed, so that what a word could be cut into is searched for once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/training/unigram_lattice.h"

namespace piton {

// Of words 0, 1, ... of one part of the words, for one thread at a time. Nodes beyond `most_nodes`
// (12 bytes each) are not remembered: the words after them are searched again each time.
class RememberedLattices {
 public:
  explicit RememberedLattices(std::size_t most_nodes) : most_nodes_(most_nodes) {}

  // Sets `lattice` to word number `index`. Words are asked for in rising order.
  void set(std::size_t index, std::string_view word, UnigramLattice& lattice);
  // Words of which nothing must be searched for.
  std::size_t words() const { return ends_.size(); }

  static constexpr std::int32_t kRemoved = -1;
  // Piece i is piece ids[i] from now on, or kRemoved.
  void renumber(std::span<const std::int32_t> ids);

 private:
  std::size_t most_nodes_;
  std::vector<LatticeNode> nodes_;
  std::vector<std::size_t> ends_;  // in nodes_, of each word
};

}  // namespace piton
