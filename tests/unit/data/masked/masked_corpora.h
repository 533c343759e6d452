// The corpora, the vocabulary and the samples of tests/golden/masked
// (tools/oracle/masked_samples.py).
#pragma once

#include <memory>
#include <string>

#include "base/log.h"
#include "data/masked/masked_sets.h"
#include "text/files/tokenizer_options.h"

namespace piton {

inline const std::string kMaskedFolder = PITON_SOURCE_DIR "/tests/golden/masked/";

inline std::unique_ptr<Tokenizer> masked_tokenizer(std::int64_t extra_ids,
                                                   const std::string& vocabulary = "vocab.txt") {
  TokenizerOptions options;
  options.type = "BertWordPieceLowerCase";
  options.vocab_file = kMaskedFolder + vocabulary;
  options.vocab_extra_ids = extra_ids;
  return open_tokenizer(options);
}

inline std::shared_ptr<const IndexedDataset> masked_corpus(const std::string& name) {
  return std::make_shared<const IndexedDataset>(IndexedDataset::open(kMaskedFolder + name));
}

// Samples of all documents of corpus `name`.
inline std::shared_ptr<const SampleSource> masked_source(const std::string& name,
                                                         const MaskedSettings& settings,
                                                         std::int64_t samples,
                                                         std::int64_t extra_ids = 100) {
  SilentLog log;
  const auto tokenizer = masked_tokenizer(extra_ids);
  const auto corpus = masked_corpus(name);
  return masked_samples(settings, {}, tokenizer.get(),
                        log)({corpus, 0, corpus->documents(), samples, "train"});
}

}  // namespace piton
