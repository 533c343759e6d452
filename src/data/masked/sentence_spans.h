// Runs of sentences from which samples of masked words are made, in the order of Megatron-core
// 0.16.1's build_mapping (datasets/helpers.cpp) to the bit.
//
// A sequence of the corpus is a sentence, a document has several of them (piton preprocess
// --split-sentences). Each epoch reads the documents in their order, without those of too few
// sentences, and those of several sentences of which one has more than 512 tokens:
//   target   `longest`; with probability p an r of mt19937(seed) makes it 2 + r mod (longest - 1):
//            if r mod round(1 / p) is 0. Drawn at the start of a document and after each run
//   run      sentences up to the one at which the run has its target and enough sentences, and the
//            document has more than one left; or up to the end of the document
// Epochs are whole: the last one passes the samples that are asked for. Then all runs are shuffled,
// Fisher-Yates from the end, by remainders of mt19937_64(seed + 1).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/huge_pages.h"
#include "data/corpus/indexed_dataset.h"

namespace piton {

struct SentenceSpan {
  std::int64_t first = 0;   // sentence of the corpus
  std::int32_t count = 0;   // of sentences
  std::int32_t target = 0;  // tokens that the sample is to have, at most
};

struct SentenceRequest {
  std::int64_t first = 0;  // documents [first, end) of the corpus
  std::int64_t end = 0;
  std::optional<std::int64_t> samples = {};  // absent: as many as one epoch gives
  std::int64_t longest = 0;                  // tokens, 2 or more
  double short_probability = 0;              // p
  std::uint32_t seed = 1234;
  std::int64_t least_sentences = 1;  // of a document and of a run
};

struct SentenceSpans {
  // In large pages: the shuffle reaches all of them at random.
  std::vector<SentenceSpan, HugePageAllocator<SentenceSpan>> spans;
  std::int64_t epochs = 0;
  // Of the documents:
  std::int64_t documents = 0;
  std::int64_t too_few = 0;   // have fewer than `least_sentences` sentences
  std::int64_t too_long = 0;  // have a sentence of more than 512 tokens
};

// Reads the lengths of the sentences once in each epoch. If there are more than a few and the
// caller may run on two processors, two threads are used; the result is the same. Throws
// Error(kData) if no document can be used, and for more than 2^32 samples.
SentenceSpans make_sentence_spans(const IndexedDataset& corpus, const SentenceRequest& request);

// The ids of a run, and where its sentences start among them: [count + 1] places, the last one is
// the end.
struct Sentences {
  std::vector<std::int32_t> ids;
  std::vector<std::size_t> starts;
};
Sentences read_sentences(const IndexedDataset& corpus, const SentenceSpan& span);

}  // namespace piton
