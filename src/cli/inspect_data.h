// What `piton inspect` says of corpora, samples and tokenizers. Each prints to standard output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/log.h"
#include "train/pretrain_options.h"

namespace piton::cli {

// The prefix of the corpus that `path` names: itself, or itself without ".idx" or ".bin"; "" if
// there is none.
std::string corpus_prefix(const std::string& path);

// True for a folder that holds a tokenizer's files, and for such a file itself.
bool is_tokenizer(const std::filesystem::path& path);

// `count` first sequences are shown, decoded where `options` names a tokenizer. `scan` reads every
// id, and warns about ids that this tokenizer does not have.
void print_corpus(const std::string& prefix, const TokenizerOptions& options, int count, bool scan,
                  bool json, Log& log);

// `options` names the tokenizer.
void print_tokenizer(const TokenizerOptions& options, std::int64_t tensor_parallel, bool json);

// Samples [first, first + count) of a run with these options, as its model reads them. Without
// --train-iters the run is taken to be just long enough. Throws Error(kUsage) where no training
// data is named and what open_data_sets and BatchSource throw.
void print_samples(const PretrainOptions& options, std::int64_t first, std::int64_t count,
                   bool json, Log& log);

}  // namespace piton::cli
