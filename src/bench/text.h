// How fast text becomes ids: the tokenizer alone, and all of preprocessing beside it.
//
// Wall time says what a user waits for; CPU time of all threads says what the work costs on a
// machine that others use too. Figures of both are given.
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
  std::int64_t bytes = 0;  // of one round
  std::int64_t tokens = 0;
  TextSamples encode;
};

// The texts that `options` reads, each a document, again and again until they are at least
// `least_bytes`. Throws what preprocess() throws about inputs, and Error(kData) if there is no
// text.
std::vector<std::string> read_texts(const PreprocessOptions& options, std::int64_t least_bytes);

// Text that no one wrote, in documents of a megabyte: what merging and look-ups of words are worst
// at.
enum class MadeText {
  kOneLetter,      // one letter, again and again
  kRandomLetters,  // a to z without spaces
  kRandomBytes,    // all 256; not UTF-8
};
std::vector<std::string> made_texts(MadeText kind, std::int64_t bytes);

// Encodes all documents once a round, on `workers` threads that take contiguous shares of equal
// bytes. Ids are dropped after each document. One round before the first is not counted.
TokenizerBench bench_tokenizer(const Tokenizer& tokenizer,
                               const std::vector<std::string>& documents, EncodeOptions options,
                               int workers, int rounds);

// The same with a tokenizer that was just opened for each round, which remembers no words yet: text
// that was not seen before. Opening is not counted.
TokenizerBench bench_fresh_tokenizer(const std::function<std::unique_ptr<Tokenizer>()>& open,
                                     const std::vector<std::string>& documents,
                                     EncodeOptions options, int workers, int rounds);

struct PreprocessBench {
  std::int64_t bytes = 0;    // of texts, in one round
  TextSamples whole;         // raw files to token files
  TextSamples unpack;        // the same files, only unpacked
  TokenizerBench tokenizer;  // the same texts, only tokenized
  // CPU time of the tokenizer over that of the whole without unpacking: 1 if nothing else costs.
  // The median of the rounds' ratios: the parts of one round ran beside the same other jobs, while
  // the best of each part favours the shorter ones on a machine that is not quiet.
  double share_of_tokenizer() const;
};

// The three in turns. The corpora are written to options.output_prefix and stay there.
PreprocessBench bench_preprocess(const Tokenizer& tokenizer, const PreprocessOptions& options,
                                 int rounds, Log& log, Progress& progress);

}  // namespace piton
