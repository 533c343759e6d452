// The tokenizer of a GGUF file (its entries tokenizer.*), from and to the files that tokenizers are
// published in.
//
//   model   what it is
//   gpt2    byte-level BPE: tokens as tokenizer.json spells them, merges; `pre` names how words are
//   cut llama   SentencePiece's BPE: pieces with scores t5      SentencePiece's Unigram: the same,
//   and the map of its normalizer none    there is none
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gguf/gguf_header.h"
#include "text/files/tokenizer_options.h"

namespace piton {

// As SentencePiece numbers them, and GGUF after it.
enum class TokenKind : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct GgufVocabulary {
  std::string model = "none";
  std::string pre;
  std::vector<std::string> tokens;  // by id; each once
  std::vector<TokenKind> kinds;     // of each
  std::vector<float> scores;        // of each; none with "gpt2"
  std::vector<std::string> merges;  // two pieces with a space between, by rank
  std::optional<std::int32_t> bos, eos, unk, pad;
  std::optional<bool> add_bos, add_eos, add_space, remove_extra_spaces;
  std::string charsmap;
  std::string chat_template;  // "": none
};

std::vector<GgufEntry> vocabulary_entries(const GgufVocabulary& vocabulary);
// Throws Error(kData), beginning with `where`, for entries that contradict one another.
GgufVocabulary read_gguf_vocabulary(const GgufHeader& header, const std::string& where);

// The vocabulary of a tokenizer's files, with as many tokens as a model's table has `rows`; ids
// that the tokenizer lacks are unused ones. `tokenizer` is what open_tokenizer(options) gives.
// Throws Error(kData) naming what a GGUF file cannot say of it.
GgufVocabulary vocabulary_of_files(const TokenizerOptions& options, const Tokenizer& tokenizer,
                                   std::int64_t rows);

// The other way: names and contents of files that open_tokenizer() reads. None for "none". Throws
// Error(kData), beginning with `where`, for a vocabulary that Piton has no tokenizer for.
std::map<std::string, std::string> files_of_vocabulary(const GgufVocabulary& vocabulary,
                                                       const std::string& where);

// The tokenizer that those files make. Null for "none".
std::unique_ptr<Tokenizer> open_gguf_tokenizer(const GgufVocabulary& vocabulary,
                                               const std::string& where);

}  // namespace piton
