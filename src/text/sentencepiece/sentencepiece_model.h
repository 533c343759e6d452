// Reader of tokenizer.model, a SentencePiece model file (protocol buffer ModelProto).
//
//   field      what
//   1          a piece: 1 text, 2 score (float), 3 type
//   2          trainer settings: 3 model type, 24 white space as suffix, 35 byte fallback,
//              44 text of a decoded unknown piece, 45 .. 48 names of <unk> <s> </s> <pad>
//   3          normalizer: 2 map of characters, 3 dummy prefix, 4 remove extra white space,
//              5 escape white space
//   5          the same for decoding: 2 map of characters
//
// Unknown fields are skipped, as the format prescribes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

struct SentencePieceFacts {
  enum class Kind { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  enum class Type {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::kNormal;
  };

  std::vector<Piece> pieces;  // by id
  Kind kind = Kind::kUnigram;
  bool whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string unknown_surface = " \xE2\x81\x87 ";
  std::string unknown_piece = "<unk>";
  std::string begin_piece = "<s>";
  std::string end_piece = "</s>";
  std::string pad_piece = "<pad>";
  std::string charsmap;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

// Throws Error(kData), beginning with `where`, if `bytes` is malformed: invalid wire format, no
// pieces, not exactly one unknown piece, empty or repeated pieces, types out of range, a byte piece
// that is not <0xNN>, byte fallback without all 256 of them, a score that is not finite.
SentencePieceFacts read_sentencepiece_model(std::string_view bytes, const std::string& where);

}  // namespace piton
