// The order of updates that need whole matrices.
//
// Matrices that are not cut are in rounds of several, in the order of the list, so that a back end
// may update them at the same time. Others are cut over several ranks (ZeRO 3).
//
// Each of these has an owner, which collects it, computes, and sends every rank its part back. A
// round of them has at most one matrix for each rank, so all ranks compute at the same time, and a
// rank holds one whole matrix at a time. Matrices of one size are in the same rounds where
// possible.
//
// Every rank makes its rounds alone, from its own spans. A matrix of which each rank of its group
// holds a part is in the spans of all of them, in the same order. A matrix that is too small for
// this is a separate round, after all others, and its first rank owns it. So the rounds of two
// ranks contain their common matrices in the same order, and no rank waits in a circle.
#pragma once

#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace piton {

// How the elements of a parameter's local tensor are cut: rank r of `ranks` holds elements
// [r part, (r + 1) part), as far as there are any.
struct MatrixCut {
  Communicator* ranks = nullptr;  // null: not cut
  std::int64_t part = 0;

  // Ranks that hold a part of `elements` elements; 1 if it is not cut.
  int holders(std::int64_t elements) const {
    return ranks == nullptr ? 1 : static_cast<int>((elements + part - 1) / part);
  }
};

struct MatrixOfRound {
  std::size_t span = 0;  // index in the caller's list
  int owner = 0;         // rank in the group of its cut; 0 if it is not cut
};
using MatrixRound = std::vector<MatrixOfRound>;

struct CutMatrix {
  std::size_t span = 0;
  std::int64_t elements = 0;  // of the whole local tensor
  MatrixCut cut;
};
// most_elements: of the matrices of a round that are not cut; one at least.
std::vector<MatrixRound> make_matrix_rounds(const std::vector<CutMatrix>& matrices,
                                            std::int64_t most_elements);

// Announces the messages of the rounds of `matrices`. Collective over the ranks of each cut.
void connect_holders(const std::vector<MatrixRound>& rounds,
                     const std::vector<CutMatrix>& matrices);

}  // namespace piton
