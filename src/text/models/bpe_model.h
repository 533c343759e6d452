// Byte-pair encoding of a word: its characters (or bytes) become symbols, and rules merge them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/models/bpe_merger.h"
#include "text/models/neighbors.h"
#include "text/models/word_model.h"

namespace piton {

// Contents of a tokenizer file, not yet checked.
struct BpeFacts {
  std::vector<std::pair<std::string, std::int32_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank
  std::vector<MergeRule> rules;  // rules by id, for files that do not name pieces
  std::optional<std::string> unknown;
  std::string continuing_prefix;  // before every symbol of a word but the first
  std::string end_suffix;         // after the last symbol of a word
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a word that is in the vocabulary is one token, whatever the rules
  bool byte_level = false;     // words are raw bytes; the vocabulary spells them (byte_level.h)
};

class BpeModel final : public WordModel {
 public:
  // Throws Error(kData), beginning with `where`, if a merge names a piece that is not in the
  // vocabulary or an id is out of range.
  BpeModel(const BpeFacts& facts, const std::string& where);

  std::unique_ptr<Scratch> make_scratch() const override;
  void encode(std::string_view word, Scratch& scratch,
              std::vector<std::int32_t>& out) const override;

  // See neighbors.h.
  std::size_t first_part(std::string_view word) const override;
  bool has_parts() const override { return splits_; }

 private:
  class BpeScratch;
  // Returns `facts.rules` and the rules of `facts.merges`.
  std::vector<MergeRule> rules_of(const BpeFacts& facts, const std::string& where) const;
  void learn_raw_bytes(const BpeFacts& facts);   // where words are raw bytes
  void learn_characters(const BpeFacts& facts);  // where they are characters
  void encode_characters(std::string_view word, std::vector<std::int32_t>& symbols) const;
  std::int32_t character_id(char32_t c, std::string_view text) const;

  std::unique_ptr<BpeRules> merges_;
  bool byte_level_ = false;
  bool ignore_merges_ = false;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool splits_ = false;
  std::string continuing_prefix_;
  std::string end_suffix_;
  std::optional<std::int32_t> unknown_;
  std::array<std::int32_t, 256>
      byte_ids_{};  // ids of bytes (byte level) or of <0xNN>; -1 where none
  std::array<std::int32_t, 128> ascii_ids_{};  // of ASCII characters, -1 where none
  std::unordered_map<char32_t, std::int32_t> character_ids_;
  std::unordered_map<std::string, std::int32_t> raw_words_;  // byte level and ignore_merges
  Neighbors neighbors_;
};

}  // namespace piton
