// tokenizer.json of the `tokenizers` library.
//
//   added_tokens, normalizer, pre_tokenizer, model (BPE, Unigram, WordPiece, WordLevel),
//   post_processor, decoder; truncation and padding are not a tokenizer's business and are not read
//
// What a file asks for and this reader does not know is an error, never ignored.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/files/json_reading.h"
#include "text/steps/pipeline_tokenizer.h"

namespace piton {

// Throws Error(kData), beginning with `where`.
TokenizerParts read_tokenizer_json(std::string_view text, const std::string& where);

// Of its "model": pairs of pieces by rank.
std::vector<std::pair<std::string, std::string>> read_json_merges(const Json& model,
                                                                  const std::string& where);

// The steps of it, each from its own object (null gives null).
std::unique_ptr<Normalizer> read_normalizer(const Json& json, const std::string& where,
                                            int depth = 0);

struct PreTokenizerFacts {
  std::unique_ptr<PreTokenizer> step;
  std::optional<Scanner> scanner;  // if the step is one known scanner and nothing else
  bool byte_level = false;         // words are to be spelled in bytes after the step
};
// `raw_bytes`: leave a final ByteLevel's spelling to the model.
PreTokenizerFacts read_pre_tokenizer(const Json& json, const std::string& where, bool raw_bytes);

struct DecoderFacts {
  std::unique_ptr<PieceDecoder> decoder;
  bool byte_level = false;
  bool byte_fallback = false;
};
DecoderFacts read_decoder(const Json& json, const std::string& where);

}  // namespace piton
