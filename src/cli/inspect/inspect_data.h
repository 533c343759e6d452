// Descriptions of corpora, samples and tokenizers for `piton inspect`, printed to standard output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/log.h"
#include "data/masked/masking_options.h"
#include "train/run/pretrain_options.h"

namespace piton::cli {

// The prefix of the corpus at `path`, which may end in ".idx" or ".bin"; "" if there is none.
std::string corpus_prefix(const std::string& path);

// True for a folder with a tokenizer's files, and for such a file.
bool is_tokenizer(const std::filesystem::path& path);

struct CorpusView {
  int count = 0;      // sequences that are shown, from the first one on
  bool scan = false;  // reads every id, and warns about ids that the tokenizer does not have
  bool json = false;
};

// Sequences are decoded if `options` names a tokenizer.
void print_corpus(const std::string& prefix, const TokenizerOptions& options,
                  const CorpusView& view, Log& log);

// `options` names the tokenizer.
void print_tokenizer(const TokenizerOptions& options, std::int64_t tensor_parallel, bool json);

enum class SamplePart { kTrain, kValid, kTest };

// Samples [first, first + count) of a part of a run.
struct SampleRange {
  SamplePart part = SamplePart::kTrain;
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool json = false;
};

// Prints these samples of a run with these options, as its model reads them: of masked words if
// --model-family is bert or t5. Without --train-iters, the run is assumed to be just long enough;
// without --eval-iters too, for the other parts. Throws Error(kUsage) if no data is named for the
// part, and the errors of open_data_sets and BatchSource.
void print_samples(const PretrainOptions& options, const SampleRange& range, Log& log);

}  // namespace piton::cli
