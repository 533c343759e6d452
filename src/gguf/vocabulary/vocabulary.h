// Converts the tokenizer of a GGUF file (its entries tokenizer.*) from and to published files.
//
//   model   tokenizer
//   gpt2    byte-level BPE: tokens as spelled in tokenizer.json, and merges; `pre` names the
//           pre-tokenizer
//   llama   BPE of SentencePiece: pieces with scores
//   t5      Unigram of SentencePiece: pieces with scores, and the map of its normalizer
//   none    no tokenizer
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gguf/gguf_header.h"
#include "text/files/tokenizer_options.h"

namespace piton {

inline constexpr const char* kGgufTemplateKey = "tokenizer.chat_template";  // of the default one

// The numbers are those of SentencePiece, which GGUF also uses.
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
  std::optional<std::int32_t> eot, eom;  // further ends: of a turn, of a message
  std::optional<bool> add_bos, add_eos, add_space, remove_extra_spaces;
  std::string charsmap;
  std::string chat_template;  // "": none
};

std::vector<GgufEntry> vocabulary_entries(const GgufVocabulary& vocabulary);
// Throws Error(kData), beginning with `where`, for entries that contradict one another.
GgufVocabulary read_gguf_vocabulary(const GgufHeader& header, const std::string& where);

// The vocabulary of a tokenizer's files, with one token for each of the `rows` of the embedding;
// ids that the tokenizer does not have are unused tokens. `tokenizer` is open_tokenizer(options).
// Throws Error(kData) naming what a GGUF file cannot express.
GgufVocabulary vocabulary_of_files(const TokenizerOptions& options, const Tokenizer& tokenizer,
                                   std::int64_t rows);

// Adds `ends`, ids at which texts of the model end, as the end of the text, of a turn and of a
// message: a file has one of each. By name where it is known ("<|eot_id|>" ends a turn,
// "<|eom_id|>" a message), else in their order. Returns those for which there is no place.
std::vector<std::int32_t> add_ends(const std::vector<std::int32_t>& ends,
                                   GgufVocabulary& vocabulary);

// The inverse: names and contents of files that open_tokenizer() and open_tokenizer_texts() read.
// Empty for "none". Throws Error(kData), beginning with `where`, for a vocabulary that no tokenizer
// of Piton supports.
std::map<std::string, std::string> files_of_vocabulary(const GgufVocabulary& vocabulary,
                                                       const std::string& where);

}  // namespace piton
