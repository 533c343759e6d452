// Normalizer and pre-tokenizer of a tokenizer.json, for training: splits a text into the words that
// the model will get, one after another.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/files/json_reading.h"
#include "text/files/tokenizer_json.h"
#include "text/steps/normalizers.h"
#include "text/steps/pre_tokenizers.h"

namespace piton {

class WordCutter {
 public:
  // The objects "normalizer" and "pre_tokenizer" of tokenizer.json; each may be null.
  WordCutter(const Json& normalizer, const Json& pre_tokenizer)
      : normalizer_(read_normalizer(normalizer, "normalizer")),
        words_(read_pre_tokenizer(pre_tokenizer, "pre_tokenizer", /*raw_bytes=*/true)) {}

  // Memory of one thread.
  struct Scratch {
    std::string normalized;
    Words words;
  };

  // The words are raw bytes, which the vocabulary spells as in byte_level.h.
  bool byte_level() const { return words_.byte_level; }

  // Calls word(std::string_view) for each word of `text`, which is UTF-8.
  template <typename Word>
  void cut(std::string_view text, Scratch& scratch, Word&& word) const {
    if (normalizer_ != nullptr) {
      scratch.normalized = text;
      normalizer_->apply(scratch.normalized);
      text = scratch.normalized;
    }
    if (text.empty()) return;
    if (words_.scanner) return scan_words(*words_.scanner, table_, text, word);
    scratch.words.text = text;
    scratch.words.ranges.assign(1, {0, text.size()});
    if (words_.step != nullptr) words_.step->apply(scratch.words, /*first=*/true);
    for (std::size_t i = 0; i < scratch.words.ranges.size(); ++i) word(scratch.words.word(i));
  }

 private:
  std::unique_ptr<Normalizer> normalizer_;
  PreTokenizerFacts words_;
  CharacterTable table_;
};

}  // namespace piton
