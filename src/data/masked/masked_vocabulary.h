// What masking needs to know of a vocabulary: ids with a role, and which pieces continue a word.
#pragma once

#include <cstdint>
#include <vector>

#include "data/masked/masking_options.h"
#include "text/tokenizer.h"

namespace piton {

struct MaskedVocabulary {
  static constexpr std::int32_t kNone = -1;  // no token has this id

  // A token of a text with this id counts as padding, as in Megatron; kNone if the id has another
  // role too, such as the end of texts: then all tokens of a text count.
  std::int32_t pad = kNone;
  std::int32_t cls = kNone;
  std::int32_t sep = kNone;
  std::int32_t mask = kNone;
  std::int32_t bos = kNone;
  std::int32_t eos = kNone;
  std::vector<std::int32_t> sentinels;  // <extra_id_0>, <extra_id_1>, ...
  std::vector<bool> continues;          // [V]: whether the piece of the id starts with "##"
  std::vector<std::int32_t> ids;        // that have a piece, ascending

  // Throws Error(kUsage) if the tokenizer lacks an id that `task` needs: padding; [CLS], [SEP] and
  // [MASK] of BERT; an end and sentinels of T5.
  static MaskedVocabulary of(const Tokenizer& tokenizer, MaskedTask task);

  // What a row or a label holds in place of `id`: rows have id 0 as padding.
  std::int32_t shown(std::int32_t id) const { return id == pad ? 0 : id; }
};

}  // namespace piton
