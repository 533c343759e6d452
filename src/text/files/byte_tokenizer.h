// Bytes as tokens: ids 0 .. 255 are the bytes, 256 ends a document. Needs no files; any text, any
// language, nothing to train. 257 ids.
#pragma once

#include "text/tokenizer.h"

namespace piton {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t kEndOfDocument = 256;
  static constexpr std::int64_t kVocabularySize = 257;

  ByteTokenizer();

  using Tokenizer::encode;
  // With add_special_tokens nothing is added; "<|endoftext|>" is parsed with parse_special_tokens.
  void encode(std::string_view text, EncodeOptions options,
              std::vector<std::int32_t>& out) const override;
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const override;
  // "<0x41>" for byte 0x41, "<|endoftext|>" for the end of a document.
  std::string piece(std::int32_t id) const override;
  std::optional<std::int32_t> id_of(std::string_view piece) const override;
  std::int64_t vocabulary_size() const override { return kVocabularySize; }
  bool is_special(std::int32_t id) const override { return id == kEndOfDocument; }
};

}  // namespace piton
