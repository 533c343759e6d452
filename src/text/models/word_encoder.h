// Encodes words with a WordModel and a WordCache.
//
// Words wait in a short queue while their cache lines are prefetched: for a word not seen lately,
// the cache miss is half of the cost.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/models/word_cache.h"
#include "text/models/word_model.h"

namespace piton {

// Not thread-safe.
class WordEncoder {
 public:
  // Keeps a reference to `model`.
  explicit WordEncoder(const WordModel& model) : model_(&model), scratch_(model.make_scratch()) {}

  // Drops waiting words. Ids of the words added until finish() are APPENDED to `out`.
  void begin(std::vector<std::int32_t>& out) {
    out_ = &out;
    waiting_ = 0;
  }
  // `readable` bytes from word.data() on may be read; they must stay valid until finish().
  void add(std::string_view word, std::size_t readable) {
    if (word.size() <= WordCache::kShortBytes) return add_short(word, readable);
    if (!model_->has_parts()) return add_long(word);
    while (!word.empty()) {
      const std::size_t length = model_->first_part(word);
      if (length <= WordCache::kShortBytes) {
        add_short(word.substr(0, length), readable);
      } else {
        add_long(word.substr(0, length));
      }
      word.remove_prefix(length);
      readable -= length;
    }
  }
  // Appends the ids of all waiting words.
  void finish() {
    for (std::size_t i = 0; i < waiting_; ++i) encode_short(queue_[i]);
    waiting_ = 0;
  }

 private:
  struct Waiting {
    std::string_view word;
    WordCache::Key key;
    WordCache::ShortLine* line = nullptr;
  };

  void add_short(std::string_view word, std::size_t readable) {
    if (word.empty()) return;
    const WordCache::Key key = WordCache::short_key(word, readable);
    WordCache::ShortLine* const line = &cache_.short_line(key);
    __builtin_prefetch(line);
    queue_[waiting_++] = {word, key, line};
    if (waiting_ == queue_.size()) finish();
  }
  void encode_short(const Waiting& waiting) {
    if (const WordCache::ShortSlot* found = WordCache::find(*waiting.line, waiting.key)) {
      for (std::uint32_t i = 0; i < found->count; ++i) out_->push_back(found->ids[i]);
    } else {
      WordCache::keep(*waiting.line, waiting.key, encode(waiting.word));
    }
  }
  void add_long(std::string_view word);
  // Encodes `word` with the model, appends the ids and returns them.
  const std::vector<std::int32_t>& encode(std::string_view word);

  const WordModel* model_;
  std::unique_ptr<WordModel::Scratch> scratch_;
  WordCache cache_;
  std::array<Waiting, 8> queue_;
  std::size_t waiting_ = 0;
  std::vector<std::int32_t> ids_;  // of one word
  std::vector<std::int32_t>* out_ = nullptr;
};

}  // namespace piton
