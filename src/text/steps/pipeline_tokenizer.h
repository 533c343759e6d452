// The tokenizer that a tokenizer.json describes (and vocab.json + merges.txt, vocab.txt, tiktoken
// files, which are read into the same parts):
//
//   text -> added tokens cut out -> normalizer -> pre-tokenizer -> model, word by word
//        -> special tokens around it
//
// Results equal those of the `tokenizers` library for every text. Faster, because words are cached,
// known pre-tokenizers are hand-written scanners, and byte-level vocabularies use raw bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/models/word_encoder.h"
#include "text/models/word_model.h"
#include "text/scratch_pool.h"
#include "text/steps/added_tokens.h"
#include "text/steps/decoders.h"
#include "text/steps/normalizers.h"
#include "text/steps/pre_tokenizers.h"
#include "text/tokenizer.h"

namespace piton {

struct TokenizerParts {
  std::unique_ptr<Normalizer> normalizer;       // may be null
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // may be null: the text is one word
  std::optional<Scanner> scanner;               // set if the pre-tokenizer is exactly a known one
  std::unique_ptr<WordModel> model;
  bool byte_level = false;                // the model takes raw bytes
  std::unique_ptr<PieceDecoder> decoder;  // null: pieces are joined by spaces
  bool byte_level_decoder = false;        // the decoder is exactly the byte-level one
  bool byte_fallback_decoder = false;     // it joins runs of <0xNN>
  std::vector<AddedToken> added;
  std::vector<std::int32_t> prefix;  // ids around a text with add_special_tokens
  std::vector<std::int32_t> suffix;
  SpecialIds special;
  std::string name;
  std::string content_hash;
};

class PipelineTokenizer final : public Tokenizer {
 public:
  explicit PipelineTokenizer(TokenizerParts parts);
  ~PipelineTokenizer() override;

  using Tokenizer::encode;
  void encode(std::string_view text, EncodeOptions options,
              std::vector<std::int32_t>& out) const override;
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const override;
  std::string piece(std::int32_t id) const override;
  std::optional<std::int32_t> id_of(std::string_view piece) const override;
  std::int64_t vocabulary_size() const override { return size_; }
  bool is_special(std::int32_t id) const override;
  bool open_ended(std::int32_t id) const override;

 private:
  struct Scratch;
  using Loan = ScratchPool<Scratch>::Loan;

  void encode_plain(std::string_view text, bool first, Scratch& scratch) const;
  void encode_normalized(std::string_view text, bool first, Scratch& scratch) const;
  std::string normalized(std::string_view text) const;

  TokenizerParts parts_;
  CharacterTable table_;
  AddedTokenMatcher raw_tokens_;
  AddedTokenMatcher normalized_tokens_;
  std::vector<const AddedToken*> added_by_id_;  // null for ids of the model
  std::vector<std::string> bytes_of_id_;        // byte-level decoder only
  std::int64_t size_ = 0;
  mutable ScratchPool<Scratch> pool_;
};

}  // namespace piton
