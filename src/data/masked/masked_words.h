// Chooses the words of a text that a model must predict, with the draws of Megatron-core 0.16.1
// (datasets/masked_dataset.py) in their order.
//
//   words    a piece and the "##" pieces after it; [CLS] and [SEP] belong to none
//   number   at most min(q T, max(1, round(q n))) tokens, for q the probability, T the target of
//            the sample and n its tokens; round goes to even
//   order    all words, shuffled; each is the first of an n-gram of words. n: drawn with a
//            probability proportional to 1 / n, n = 1, 2, 3 (BERT), or geometric(0.2) but at most
//            10 (T5, from SpanBERT, Joshi et al. 2019, arXiv:1907.10529); less if the number would
//            be passed. An n-gram with a token that is masked already is left out
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/masked/masked_vocabulary.h"
#include "data/samples/numpy_random.h"

namespace piton {

struct MaskingRules {
  MaskedTask task = MaskedTask::kBert;
  double probability = 0.15;  // q
};

// Places of an n-gram in its text, ascending. Words next to a [SEP] may have it between them.
using MaskedSpan = std::vector<std::int32_t>;

struct MaskedText {
  std::vector<std::int32_t> ids;  // of the text; BERT: with its replacements, T5: as they were
  std::vector<MaskedSpan> spans;  // in the order of the text
};

// A masked token of BERT becomes [MASK] with probability 0.8, any id with 0.1, and else stays.
// `target`: T. Throws Error(kData) for an id that the vocabulary lacks.
MaskedText mask_words(std::span<const std::int32_t> ids, std::int32_t target,
                      const MaskedVocabulary& vocabulary, const MaskingRules& rules,
                      NumpyRandom& random);

}  // namespace piton
