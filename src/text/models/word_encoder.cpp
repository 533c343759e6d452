#include "text/models/word_encoder.h"

#include <algorithm>

namespace piton {

const std::vector<std::int32_t>& WordEncoder::encode(std::string_view word) {
  ids_.clear();
  model_->encode(word, *scratch_, ids_);
  out_->insert(out_->end(), ids_.begin(), ids_.end());
  return ids_;
}

void WordEncoder::add_long(std::string_view word) {
  finish();
  if (word.size() > WordCache::kLongBytes) {
    encode(word);
    return;
  }
  std::uint64_t key[4];
  WordCache::LongSlot& slot = cache_.long_slot(word, key);
  if (std::equal(std::begin(key), std::end(key), slot.words)) {
    out_->insert(out_->end(), slot.ids, slot.ids + slot.count);
    return;
  }
  const std::vector<std::int32_t>& ids = encode(word);
  if (ids.size() > WordCache::kLongIds) return;
  std::copy(std::begin(key), std::end(key), slot.words);
  slot.count = static_cast<std::uint32_t>(ids.size());
  std::copy(ids.begin(), ids.end(), slot.ids);
}

}  // namespace piton
