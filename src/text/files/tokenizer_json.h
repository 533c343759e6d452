// Reader of tokenizer.json of the `tokenizers` library.
//
//   added_tokens, normalizer, pre_tokenizer, model (BPE, Unigram, WordPiece, WordLevel),
//   post_processor, decoder
//
// Truncation and padding are ignored: they do not change tokenization. A step or model of an
// unknown type is an error.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/files/json_reading.h"
#include "text/steps/pipeline_tokenizer.h"

namespace piton {

// Throws Error(kData); its message begins with `where`.
TokenizerParts read_tokenizer_json(std::string_view text, const std::string& where);

// Of its "model": pairs of pieces by rank.
std::vector<std::pair<std::string, std::string>> read_json_merges(const Json& model,
                                                                  const std::string& where);

// The steps of it, each from its own object (null gives null).
std::unique_ptr<Normalizer> read_normalizer(const Json& json, const std::string& where,
                                            int depth = 0);

struct PreTokenizerFacts {
  std::unique_ptr<PreTokenizer> step;
  std::optional<Scanner> scanner;  // set if the step is exactly one known scanner
  bool byte_level = false;         // words must be spelled as bytes after the step
};
// `raw_bytes`: the model reads raw bytes, so a final ByteLevel adds no spelling step.
PreTokenizerFacts read_pre_tokenizer(const Json& json, const std::string& where, bool raw_bytes);

struct DecoderFacts {
  std::unique_ptr<PieceDecoder> decoder;
  bool byte_level = false;
  bool byte_fallback = false;
};
DecoderFacts read_decoder(const Json& json, const std::string& where);

}  // namespace piton
