// Learns a unigram vocabulary from counted words. It starts with many repeated substrings, and
// keeps those that make the words likely, by expectation maximization.
//
// Follows UnigramTrainer of the `tokenizers` library, with its constants: a million substrings of
// at most 16 characters, two rounds of expectation between prunings, three quarters kept at each.
// The pieces are the same. The scores differ by rounding only: the library sums in the order of a
// hash table and of threads, Piton in the order of the words. Of equal scores, characters come
// first, by code point, then the pieces that were candidates for longer. Characters that were
// pruned are added again at the end: by code point, in the library in the order of a hash table.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/threads.h"
#include "text/training/unigram_lattice.h"
#include "text/training/word_counts.h"

namespace piton {

struct UnigramTraining {
  std::int64_t vocabulary_size = 0;
  std::vector<std::string> first_pieces;  // special tokens; ids 0, 1, ..., with score 0
};

// The vocabulary by id: the first pieces, then by falling score. It is smaller than asked for if
// the words do not have enough pieces. The result does not depend on the number of threads. Calls
// `shown` after each round with the number of pieces. Throws Error(kUsage) if first pieces and
// characters are more than the vocabulary may hold.
std::vector<ScoredPiece> train_unigram(std::span<const CountedWord> words,
                                       const UnigramTraining& training, ThreadPool& threads,
                                       const std::function<void(std::int64_t)>& shown);

}  // namespace piton
