// Trains a tokenizer and makes its files, for the `tokenizers` library, Transformers and
// open_tokenizer().
#pragma once

#include <functional>
#include <span>
#include <string>

#include "base/threads.h"
#include "text/training/tokenizer_plan.h"
#include "text/training/training_options.h"
#include "text/training/word_counts.h"

namespace piton {

struct TrainedTokenizer {
  std::string json;    // tokenizer.json
  std::string config;  // tokenizer_config.json
  std::int64_t pieces = 0;
  std::int64_t merges = 0;
};

// Learns from `words`, which must have been split by the steps of the plan. Calls `shown` from time
// to time with the number of pieces. Throws Error(kUsage) if the vocabulary cannot hold the
// alphabet.
TrainedTokenizer train_tokenizer(std::span<const CountedWord> words,
                                 const TokenizerTrainingOptions& options, const TokenizerPlan& plan,
                                 ThreadPool& threads,
                                 const std::function<void(std::int64_t)>& shown);

}  // namespace piton
