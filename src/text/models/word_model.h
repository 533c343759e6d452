// Models that map a word, as cut out by a pre-tokenizer, to ids. Implementations: bpe_model.h,
// wordpiece_model.h, unigram_model.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/models/vocabulary.h"

namespace piton {

class WordModel {
 public:
  virtual ~WordModel() = default;

  // Working memory of encode(); one per concurrent call.
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };
  virtual std::unique_ptr<Scratch> make_scratch() const { return std::make_unique<Scratch>(); }

  // APPENDS the ids of `word`, which is not empty. The ids depend only on `word`.
  virtual void encode(std::string_view word, Scratch& scratch,
                      std::vector<std::int32_t>& out) const = 0;

  // Bytes of the first part of `word`. Encoding this part and the rest separately gives the same
  // ids.
  virtual std::size_t first_part(std::string_view word) const { return word.size(); }
  // False if first_part() never cuts.
  virtual bool has_parts() const { return false; }

  const PieceVocabulary& vocabulary() const { return vocabulary_; }

 protected:
  PieceVocabulary vocabulary_;
};

}  // namespace piton
