// Learns a unigram vocabulary from counted words: from many repeated substrings, those are kept
// that make the words likely, as counted by expectation and maximization.
//
// Follows UnigramTrainer of the `tokenizers` library with its constants: a million substrings of at
// most 16 characters, two rounds of expectation between cuts, three quarters kept at each. Where no
// cut is made pieces agree, and scores to rounding: there the sums are in the order of a hash table
// and of threads, here in the order of the words. Of what a cut leaves, one or two pieces of a
// hundred are others. Of equal scores, characters come first, by code point, then the pieces that
// were longer in the running. Characters that have lost their place on the way come back below all
// others, there in the order of a hash table, here by code point.
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

// The vocabulary by id: the first pieces, then by falling score. It is smaller than asked for where
// the words do not hold as many pieces. The result does not depend on the number of threads.
// `shown` is called after each round with the number of pieces. Throws Error(kUsage) if first
// pieces and characters are more than the vocabulary may hold.
std::vector<ScoredPiece> train_unigram(std::span<const CountedWord> words,
                                       const UnigramTraining& training, ThreadPool& threads,
                                       const std::function<void(std::int64_t)>& shown);

}  // namespace piton
