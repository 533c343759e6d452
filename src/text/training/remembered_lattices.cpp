#include "text/training/remembered_lattices.h"

namespace piton {

void RememberedLattices::set(std::size_t index, std::string_view word, UnigramLattice& lattice) {
  if (index < ends_.size()) {
    const std::size_t begin = index == 0 ? 0 : ends_[index - 1];
    lattice.set(word.size(), std::span(nodes_).subspan(begin, ends_[index] - begin));
    return;
  }
  lattice.set(word);
  const std::span<const LatticeNode> nodes = lattice.nodes();
  if (index > ends_.size() || nodes_.size() + nodes.size() > most_nodes_) return;
  nodes_.insert(nodes_.end(), nodes.begin(), nodes.end());
  ends_.push_back(nodes_.size());
}

void RememberedLattices::renumber(std::span<const std::int32_t> ids) {
  std::size_t kept = 0;
  std::size_t next = 0;
  for (std::size_t& end : ends_) {
    for (; next < end; ++next) {
      LatticeNode node = nodes_[next];
      node.piece = ids[static_cast<std::size_t>(node.piece)];
      if (node.piece == kRemoved) {
        if (!node.character) continue;
        node.piece = 0;
      }
      nodes_[kept++] = node;
    }
    end = kept;
  }
  nodes_.resize(kept);
}

}  // namespace piton
