// Speed of tokenizing text: the tokenizer alone, and the whole of preprocessing.
//
// Reports both wall time, for which a user waits, and CPU time of all threads, which is meaningful
// on a shared machine too.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/timing.h"
#include "data/preprocess/preprocess.h"
#include "text/tokenizer.h"

namespace piton {

struct TextSamples {
  Samples wall;
  Samples cpu;  // of the whole process
};

struct TokenizerBench {
  std::int64_t documents = 0;
  std::int64_t bytes = 0;  // per round
  std::int64_t tokens = 0;
  TextSamples encode;
};

// The texts that `options` selects, one document each, repeated until they have at least
// `least_bytes`. Throws like preprocess() for bad inputs, and Error(kData) if there is no text.
std::vector<std::string> read_texts(const PreprocessOptions& options, std::int64_t least_bytes);

// Artificial text in documents of a megabyte: the worst cases for merges and word look-ups.
enum class MadeText {
  kOneLetter,      // one repeated letter
  kRandomLetters,  // a to z without spaces
  kRandomBytes,    // all 256; not UTF-8
};
std::vector<std::string> made_texts(MadeText kind, std::int64_t bytes);

// Encodes all documents once per round, on `workers` threads with contiguous shares of about equal
// bytes. Drops the ids after each document. A warm-up round is not counted.
TokenizerBench bench_tokenizer(const Tokenizer& tokenizer,
                               const std::vector<std::string>& documents, EncodeOptions options,
                               int workers, int rounds);

// The same with a newly opened tokenizer for each round, whose cache of words is empty. Opening is
// not counted.
TokenizerBench bench_fresh_tokenizer(const std::function<std::unique_ptr<Tokenizer>()>& open,
                                     const std::vector<std::string>& documents,
                                     EncodeOptions options, int workers, int rounds);

struct PreprocessBench {
  std::int64_t bytes = 0;    // of texts, in one round
  TextSamples whole;         // raw files to token files
  TextSamples unpack;        // the same files, only unpacked
  TokenizerBench tokenizer;  // the same texts, only tokenized
  // CPU time of the tokenizer divided by that of the whole without unpacking; 1 if nothing else
  // takes time. The median of the ratios of all rounds: the parts of one round ran under the same
  // load of other jobs, while a ratio of best times favors the shorter parts.
  double share_of_tokenizer() const;
};

// Measures the three in turn. The corpora are written to options.output_prefix and stay there.
PreprocessBench bench_preprocess(const Tokenizer& tokenizer, const PreprocessOptions& options,
                                 int rounds, Log& log, Progress& progress);

}  // namespace piton
