// What masking needs to know of a vocabulary: ids with a role, and which pieces continue a word.
#pragma once

#include <cstdint>
#include <vector>

#include "data/masked/masking_options.h"
#include "text/tokenizer.h"

namespace piton {

struct MaskedVocabulary {
  static constexpr std::int32_t kNone = -1;  // no token has this id

  std::int32_t pad = 0;  // fills rows up
  std::int32_t cls = kNone;
  std::int32_t sep = kNone;
  std::int32_t mask = kNone;
  std::int32_t bos = kNone;
  std::int32_t eos = kNone;
  std::vector<std::int32_t> sentinels;  // <extra_id_0>, <extra_id_1>, ...
  std::vector<bool> continues;          // [V]: whether the piece of the id starts with "##"
  std::vector<std::int32_t> ids;        // that have a piece, ascending

  // Throws Error(kUsage) if the tokenizer lacks an id that `task` needs ([CLS], [SEP] and [MASK] of
  // BERT; a begin, an end and sentinels of T5), and if padding is not id 0: Megatron's masks take
  // every token of id 0 for padding. Samples of BERT with one part, without `pairs`, may have
  // another id (RoBERTa).
  static MaskedVocabulary of(const Tokenizer& tokenizer, MaskedTask task, bool pairs = true);
};

}  // namespace piton
