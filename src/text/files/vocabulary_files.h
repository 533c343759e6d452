// Readers of plain vocabulary files: vocab.json + merges.txt (byte-level BPE), vocab.txt
// (WordPiece) and tiktoken ranks. They return the parts of a pipeline.
//
// The family supplies what these files do not contain: pre-tokenizer, normal form, special tokens.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/steps/pipeline_tokenizer.h"

namespace piton {

struct ByteBpeFamily {
  Scanner scanner{Scanner::Kind::kGpt2, 0};
  bool nfc = false;  // true for Qwen
  bool add_prefix_space = false;
  bool ignore_merges = false;
};

// Throws Error(kData); its message begins with the name of the malformed file.
TokenizerParts read_byte_bpe(std::string_view vocabulary_json, std::string_view merges_txt,
                             const ByteBpeFamily& family, const std::string& vocabulary_where,
                             const std::string& merges_where);

// Pairs of pieces by rank. Throws Error(kData), beginning with `where`, naming the line that is
// none.
std::vector<std::pair<std::string, std::string>> read_merges_txt(std::string_view merges_txt,
                                                                 const std::string& where);

struct WordPieceFamily {
  bool lowercase = true;
  // Megatron's BertWordPiece types: Python's BasicTokenizer instead of the `tokenizers` library,
  // words of at most 200 characters, [BOS], [EOS] and <extra_id_i> appended, no [CLS] .. [SEP].
  bool megatron = false;
  std::int64_t extra_ids = 0;
  bool strip_accents = true;  // ignored if `megatron`
  bool chinese_characters = true;
};

// vocab.txt: one piece per line; its id is the number of the line, from 0.
TokenizerParts read_word_piece(std::string_view vocabulary_txt, const WordPieceFamily& family,
                               const std::string& where);

// tiktoken file: each line has the bytes of a token in base64, a space and its rank. `scanner`:
// cl100k's pattern, with runs of at most `digits` digits.
TokenizerParts read_tiktoken(std::string_view ranks, const Scanner& scanner,
                             const std::string& where);

}  // namespace piton
