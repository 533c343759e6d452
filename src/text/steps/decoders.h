// The last step back: the pieces of ids to text, as the "decoder" of a tokenizer.json says.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/unicode/pattern.h"

namespace piton {

class PieceDecoder {
 public:
  virtual ~PieceDecoder() = default;
  // Rewrites the pieces; joined, they are the text.
  virtual void apply(std::vector<std::string>& pieces) const = 0;
};

std::unique_ptr<PieceDecoder> make_decoder_sequence(
    std::vector<std::unique_ptr<PieceDecoder>> steps);
// Pieces in the byte-level alphabet become their bytes, others stay; all in one.
std::unique_ptr<PieceDecoder> make_byte_level_decoder();
std::unique_ptr<PieceDecoder> make_replace_decoder(std::string from, std::string to);
std::unique_ptr<PieceDecoder> make_replace_decoder(Pattern from, std::string to);
// Replacement characters become spaces; in the first piece, if `prepended`, they go.
std::unique_ptr<PieceDecoder> make_metaspace_decoder(std::string replacement, bool prepended);
// Runs of <0xNN> become characters, or U+FFFD for each byte if the run is not UTF-8.
std::unique_ptr<PieceDecoder> make_byte_fallback_decoder();
std::unique_ptr<PieceDecoder> make_fuse_decoder();
// Removes up to `start` and `stop` copies of `content` from the ends of each piece.
std::unique_ptr<PieceDecoder> make_strip_decoder(std::string content, std::size_t start,
                                                 std::size_t stop);
// Spaces between pieces but before those with `prefix`; `cleanup` mends punctuation.
std::unique_ptr<PieceDecoder> make_word_piece_decoder(std::string prefix, bool cleanup);
// `suffix` ends a word.
std::unique_ptr<PieceDecoder> make_bpe_decoder(std::string suffix);

// The byte of a piece "<0xNN>", -1 for others.
int fallback_byte(std::string_view piece);

}  // namespace piton
