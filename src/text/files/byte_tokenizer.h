// Tokenizer over bytes: ids 0 .. 255 are the bytes, 256 ends a document; 257 ids in all. Works for
// any text, without files or training.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace piton {

class ByteTokenizer final : public Tokenizer {
 public:
  static constexpr std::int32_t kEndOfDocument = 256;
  static constexpr std::int64_t kVocabularySize = 257;

  ByteTokenizer();

  using Tokenizer::encode;
  // add_special_tokens has no effect. With parse_special_tokens, "<|endoftext|>" becomes id 256.
  void encode(std::string_view text, EncodeOptions options,
              std::vector<std::int32_t>& out) const override;
  std::string decode(std::span<const std::int32_t> ids, DecodeOptions options = {}) const override;
  // "<0x41>" for byte 0x41, "<|endoftext|>" for the end of a document.
  std::string piece(std::int32_t id) const override;
  std::optional<std::int32_t> id_of(std::string_view piece) const override;
  std::int64_t vocabulary_size() const override { return kVocabularySize; }
  bool is_special(std::int32_t id) const override { return id == kEndOfDocument; }
};

// The same tokenizer as files of Hugging Face: a byte-level BPE without merges, whose ids are those
// above. Each is the content of the file of its name.
struct ByteTokenizerFiles {
  std::string tokenizer_json;
  std::string tokenizer_config_json;
};
ByteTokenizerFiles byte_tokenizer_files();

}  // namespace piton
