// The cards of the corpora that preprocess() wrote.
#pragma once

#include <string>

#include "data/preprocess/preprocess.h"

namespace piton {

// Writes PREFIX.json next to each corpus (data/corpus/corpus_card.h). `made_by`: the version of the
// program. Throws Error(kData) if one cannot be written.
void write_cards(const PreprocessOptions& options, const Tokenizer& tokenizer,
                 const PreprocessReport& done, const std::string& made_by);

}  // namespace piton
