// Learns the merges of a byte-pair encoding from counted words: in each step, the most frequent
// pair of neighboring pieces becomes a piece.
//
// Gives the vocabulary and the merges of the `tokenizers` library (BpeTrainer, and WordPieceTrainer
// with the continuing prefix "##"). As in the library, of equally frequent pairs the one with the
// lower left id comes first, then the one with the lower right id. Pairs that form again later are
// also treated as in the library:
//
//   A merged pair keeps its count. If it forms again later, it is merged again, in the words where
//   it has formed since. Its rank is that of the last merge.
//   A pair that forms again while it is in the queue is queued a second time. Each entry has the
//   words where the pair formed at that time. The first entry keeps its place; when it comes out of
//   the queue, its count is computed again.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "text/training/bpe_alphabet.h"

namespace piton {

struct TrainedBpe {
  std::vector<std::string> pieces;                            // by id
  std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // by rank
};

// Returns fewer pieces than asked for if no further pair is as frequent as training.min_frequency.
// The result does not depend on the number of threads. Calls `shown` from time to time with the
// number of pieces. Throws like spell_words().
TrainedBpe train_bpe(std::span<const CountedWord> words, const BpeTraining& training,
                     ThreadPool& threads, const std::function<void(std::int64_t)>& shown);

}  // namespace piton
