// The last step of decoding: turns the pieces of ids into text, as "decoder" in a tokenizer.json
// defines it.
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
  // Rewrites the pieces. After the last decoder, the text is all pieces joined.
  virtual void apply(std::vector<std::string>& pieces) const = 0;
};

std::unique_ptr<PieceDecoder> make_decoder_sequence(
    std::vector<std::unique_ptr<PieceDecoder>> steps);
// Replaces each piece in the byte-level alphabet by its bytes, keeps the others, and joins all into
// one piece.
std::unique_ptr<PieceDecoder> make_byte_level_decoder();
std::unique_ptr<PieceDecoder> make_replace_decoder(std::string from, std::string to);
std::unique_ptr<PieceDecoder> make_replace_decoder(Pattern from, std::string to);
// Replaces `replacement` by a space; if `prepended`, removes it in the first piece.
std::unique_ptr<PieceDecoder> make_metaspace_decoder(std::string replacement, bool prepended);
// Turns a run of pieces <0xNN> into the characters that these bytes encode, or into U+FFFD for each
// byte if the run is not UTF-8.
std::unique_ptr<PieceDecoder> make_byte_fallback_decoder();
// Joins all pieces into one.
std::unique_ptr<PieceDecoder> make_fuse_decoder();
// Removes up to `start` and `stop` copies of `content` from the ends of each piece.
std::unique_ptr<PieceDecoder> make_strip_decoder(std::string content, std::size_t start,
                                                 std::size_t stop);
// Puts a space between pieces, except before a piece with `prefix`, which it removes. `cleanup`
// removes the spaces before punctuation and contractions.
std::unique_ptr<PieceDecoder> make_word_piece_decoder(std::string prefix, bool cleanup);
// `suffix` marks the end of a word: turns it into a space, and removes it from the last piece.
std::unique_ptr<PieceDecoder> make_bpe_decoder(std::string suffix);

// The byte of a piece "<0xNN>"; -1 for other pieces.
int fallback_byte(std::string_view piece);

}  // namespace piton
