// Tokenizer for tokenizer.model files, with the results of the SentencePiece library (Kudo &
// Richardson 2018, arXiv:1808.06226).
//
// A text is normalized (map of characters, white space), a dummy space is put before it, spaces are
// written as "▁", and the result is encoded: BPE by scores, or the best unigram path. Bytes that
// are not UTF-8 become U+FFFD, one each. Control pieces (<s>) are recognized only with
// parse_special_tokens; each stretch between them is then encoded separately.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/models/bpe_merger.h"
#include "text/models/neighbors.h"
#include "text/models/trie.h"
#include "text/models/vocabulary.h"
#include "text/models/word_cache.h"
#include "text/scratch_pool.h"
#include "text/sentencepiece/sentencepiece_model.h"
#include "text/steps/added_tokens.h"
#include "text/tokenizer.h"
#include "text/unicode/charsmap.h"

namespace piton {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // Settings that are not in the file: special tokens of add_special_tokens, and extra tokens.
  struct Settings {
    bool add_bos = true;
    bool add_eos = false;
    std::vector<AddedToken> added;  // with new ids or those of pieces
  };

  SentencePieceTokenizer(SentencePieceFacts facts, Settings settings, std::string content_hash,
                         const std::string& where);
  ~SentencePieceTokenizer() override;

  using Tokenizer::encode;
  void encode(std::string_view text, EncodeOptions options,
              std::vector<std::int32_t>& out) const override;
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const override;
  std::string piece(std::int32_t id) const override;
  std::optional<std::int32_t> id_of(std::string_view piece) const override;
  std::int64_t vocabulary_size() const override { return size_; }
  bool is_special(std::int32_t id) const override;
  bool open_ended(std::int32_t id) const override;

  // The text after normalization, as the model encodes it.
  std::string normalized(std::string_view text) const;

 private:
  struct Scratch;
  using Loan = ScratchPool<Scratch>::Loan;

  SentencePieceFacts::Type type_of(std::int32_t id) const;
  void build_bpe();
  std::size_t user_defined_at(std::string_view text, std::int32_t* id) const;
  void encode_stretch(std::string_view text, Scratch& scratch,
                      std::vector<std::int32_t>& out) const;
  void encode_bpe(std::string_view text, Scratch& scratch, std::vector<std::int32_t>& out) const;
  void encode_bpe_part(std::string_view part, Scratch& scratch,
                       std::vector<std::int32_t>& out) const;
  void merge_run(Scratch& scratch, std::vector<std::int32_t>& out) const;
  void append_split(std::int32_t symbol, std::vector<std::int32_t>& out) const;
  void encode_unigram(std::string_view text, Scratch& scratch,
                      std::vector<std::int32_t>& out) const;
  void append_unknown(std::string_view text, std::vector<std::int32_t>& out) const;

  SentencePieceFacts facts_;
  Settings settings_;
  Charsmap charsmap_;
  PieceVocabulary vocabulary_;
  std::int64_t size_ = 0;
  std::int32_t unknown_ = 0;
  std::vector<std::int32_t> byte_ids_;  // [256], empty without byte fallback
  Trie user_defined_;
  bool has_user_defined_ = false;
  AddedTokenMatcher matcher_;

  // BPE. Symbols above the vocabulary are characters that only occur inside pieces.
  std::unique_ptr<BpeRules> merges_;
  std::unordered_map<char32_t, std::int32_t> characters_;
  std::int32_t ascii_[128] = {};
  std::vector<std::string> helper_characters_;
  std::unordered_map<std::int32_t, std::pair<std::int32_t, std::int32_t>> parts_of_unused_;
  Neighbors neighbors_;

  // Unigram.
  Trie trie_;
  float lowest_score_ = 0;
  // Starts at the smallest positive float, as in the library. User-defined pieces count with this
  // score: scores are logarithms, so these pieces win over all others.
  float highest_score_ = std::numeric_limits<float>::min();

  mutable ScratchPool<Scratch> pool_;
};

}  // namespace piton
