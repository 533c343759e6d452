// Descriptions of corpora, samples and tokenizers for `piton inspect`, printed to standard output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/log.h"
#include "train/pretrain_options.h"

namespace piton::cli {

// The prefix of the corpus at `path`, which may end in ".idx" or ".bin"; "" if there is none.
std::string corpus_prefix(const std::string& path);

// True for a folder with a tokenizer's files, and for such a file.
bool is_tokenizer(const std::filesystem::path& path);

// Shows the first `count` sequences, decoded if `options` names a tokenizer. `scan` reads every id,
// and warns about ids that this tokenizer does not have.
void print_corpus(const std::string& prefix, const TokenizerOptions& options, int count, bool scan,
                  bool json, Log& log);

// `options` names the tokenizer.
void print_tokenizer(const TokenizerOptions& options, std::int64_t tensor_parallel, bool json);

enum class SamplePart { kTrain, kValid, kTest };

// Prints samples [first, first + count) of a part of a run with these options, as its model reads
// them. Without --train-iters, the run is assumed to be just long enough; without --eval-iters too,
// for the other parts. Throws Error(kUsage) if no data is named for the part, and the errors of
// open_data_sets and BatchSource.
void print_samples(const PretrainOptions& options, SamplePart part, std::int64_t first,
                   std::int64_t count, bool json, Log& log);

}  // namespace piton::cli
