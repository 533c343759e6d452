// Which part of each sequence a rank of the context axis has. A sequence is cut into 2 c equal
// stretches for c ranks; rank r has stretches r and 2 c - 1 - r. Under a causal mask a late row
// sees more keys than an early one, and so all ranks have the same work.
#pragma once

#include <cstdint>

namespace piton {

struct SequenceStretches {
  int rank = 0;
  int ranks = 1;

  int count() const { return 2 * ranks; }
  int first() const { return rank; }
  int second() const { return count() - 1 - rank; }
  // Rows of one stretch of a sequence of `sequence` rows, a multiple of count().
  std::int64_t rows(std::int64_t sequence) const { return sequence / count(); }
};

}  // namespace piton
