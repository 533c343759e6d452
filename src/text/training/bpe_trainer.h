// Learns the merges of a byte-pair encoding from counted words: again and again the most frequent
// pair of neighbouring pieces becomes a piece.
//
// Gives the vocabulary and the merges of the `tokenizers` library (BpeTrainer, and WordPieceTrainer
// with the continuing prefix "##"). Of equally frequent pairs the one with the lower left id comes
// first, then the one with the lower right id, there as here. Its habits where a piece comes about
// in two ways are kept too:
//
//   The count of a pair stays when it is merged. Where the same pair forms anew later, it is merged
//   anew, in the words where it formed since, and its rank is that of the last time.
//   A pair that forms anew while it waits is queued twice, each time with the words where it formed
//   then; the one that waits keeps its place until its turn, and is weighed anew then.
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

// Fewer pieces than asked for where no pair is as frequent as training.min_frequency. The result
// does not depend on the number of threads. `shown` is called now and then with the number of
// pieces. Throws as spell_words() does.
TrainedBpe train_bpe(std::span<const CountedWord> words, const BpeTraining& training,
                     ThreadPool& threads, const std::function<void(std::int64_t)>& shown);

}  // namespace piton
