#include "text/sentencepiece/sentencepiece_model.h"

#include <cmath>
#include <cstring>
#include <unordered_set>

#include "base/error.h"
#include "text/models/vocabulary.h"
#include "text/steps/decoders.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// One field of a message in the wire format.
struct WireField {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  // varint and fixed kinds
  std::string_view bytes;   // length-delimited kind
  bool is_bytes = false;
};

class WireReader {
 public:
  WireReader(std::string_view bytes, const std::string& where) : bytes_(bytes), where_(&where) {}

  bool next(WireField& field) {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t tag = varint();
    field = {};
    field.number = tag >> 3;
    if (field.number == 0) fail("field number 0");
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        field.value = fixed(8);
        break;
      case 5:
        field.value = fixed(4);
        break;
      case 2: {
        const std::uint64_t size = varint();
        if (size > bytes_.size() - at_) fail("a field longer than the file");
        field.bytes = bytes_.substr(at_, size);
        field.is_bytes = true;
        at_ += size;
        break;
      }
      default:
        fail("an unknown kind of field");
    }
    return true;
  }

 private:
  [[noreturn]] void fail(const char* what) const {
    throw Error(
        Fault::kData,
        "{}: not a SentencePiece model: {} at byte {} of a message of {}; is the file whole "
        "(and not a text file that points to it)?",
        *where_, what, at_, bytes_.size());
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail("an unfinished number");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number above 64 bits");
  }
  std::uint64_t fixed(std::size_t size) {
    if (bytes_.size() - at_ < size) fail("an unfinished number");
    std::uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + at_, size);
    at_ += size;
    return value;
  }

  std::string_view bytes_;
  const std::string* where_;
  std::size_t at_ = 0;
};

SentencePieceFacts::Piece read_piece(std::string_view bytes, const std::string& where) {
  SentencePieceFacts::Piece piece;
  WireReader reader(bytes, where);
  for (WireField field; reader.next(field);) {
    if (field.number == 1) piece.text = field.bytes;
    if (field.number == 2) {
      const auto bits = static_cast<std::uint32_t>(field.value);
      std::memcpy(&piece.score, &bits, 4);
    }
    if (field.number == 3) {
      if (field.value < 1 || field.value > 6) {
        throw Error(Fault::kData, "{}: piece \"{}\": type {} is not known, wanted 1 .. 6", where,
                    replace_bad_utf8(piece.text), field.value);
      }
      piece.type = static_cast<SentencePieceFacts::Type>(field.value);
    }
  }
  return piece;
}

void read_training(std::string_view bytes, const std::string& where, SentencePieceFacts& facts) {
  WireReader reader(bytes, where);
  for (WireField field; reader.next(field);) {
    switch (field.number) {
      case 3:
        if (field.value < 1 || field.value > 4) {
          throw Error(Fault::kData, "{}: model type {} is not known, wanted 1 .. 4", where,
                      field.value);
        }
        facts.kind = static_cast<SentencePieceFacts::Kind>(field.value);
        break;
      case 24:
        facts.whitespace_as_suffix = field.value != 0;
        break;
      case 35:
        facts.byte_fallback = field.value != 0;
        break;
      case 44:
        facts.unknown_surface = field.bytes;
        break;
      case 45:
        facts.unknown_piece = field.bytes;
        break;
      case 46:
        facts.begin_piece = field.bytes;
        break;
      case 47:
        facts.end_piece = field.bytes;
        break;
      case 48:
        facts.pad_piece = field.bytes;
        break;
      default:
        break;
    }
  }
}

void read_normalizer_spec(std::string_view bytes, const std::string& where,
                          SentencePieceFacts& facts) {
  WireReader reader(bytes, where);
  for (WireField field; reader.next(field);) {
    switch (field.number) {
      case 2:
        facts.charsmap = field.bytes;
        break;
      case 3:
        facts.add_dummy_prefix = field.value != 0;
        break;
      case 4:
        facts.remove_extra_whitespaces = field.value != 0;
        break;
      case 5:
        facts.escape_whitespaces = field.value != 0;
        break;
      default:
        break;
    }
  }
}

void check(const SentencePieceFacts& facts, const std::string& where) {
  using Type = SentencePieceFacts::Type;
  if (facts.pieces.empty() ||
      facts.pieces.size() > static_cast<std::size_t>(PieceVocabulary::kMaxId)) {
    throw Error(
        Fault::kData,
        "{}: not a SentencePiece model: {} pieces, wanted 1 .. {}; is it another kind of file?",
        where, facts.pieces.size(), PieceVocabulary::kMaxId);
  }
  std::unordered_set<std::string_view> seen;
  std::int64_t unknowns = 0;
  std::int64_t bytes = 0;
  for (const auto& piece : facts.pieces) {
    if (piece.text.empty() || !seen.insert(piece.text).second) {
      throw Error(Fault::kData, "{}: piece {} \"{}\" is {}; fetch the file again", where,
                  &piece - facts.pieces.data(), replace_bad_utf8(piece.text),
                  piece.text.empty() ? "empty" : "there twice");
    }
    if (piece.text.size() > PieceVocabulary::kMaxPieceBytes) {
      throw Error(Fault::kData,
                  "{}: piece {} has {} bytes, wanted at most {}; fetch the file again", where,
                  &piece - facts.pieces.data(), piece.text.size(), PieceVocabulary::kMaxPieceBytes);
    }
    if (!std::isfinite(piece.score)) {
      throw Error(Fault::kData, "{}: the score of piece \"{}\" is not a finite number", where,
                  replace_bad_utf8(piece.text));
    }
    unknowns += piece.type == Type::kUnknown ? 1 : 0;
    if (piece.type == Type::kByte) {
      ++bytes;
      if (fallback_byte(piece.text) < 0) {
        throw Error(Fault::kData, "{}: piece \"{}\" is a byte, wanted <0x00> .. <0xFF>", where,
                    replace_bad_utf8(piece.text));
      }
    }
  }
  if (unknowns != 1) {
    throw Error(Fault::kData, "{}: got {} unknown pieces, wanted 1; fetch the file again", where,
                unknowns);
  }
  if (facts.byte_fallback && bytes != 256) {
    throw Error(Fault::kData, "{}: byte fallback with {} byte pieces, wanted 256", where, bytes);
  }
}

}  // namespace

SentencePieceFacts read_sentencepiece_model(std::string_view bytes, const std::string& where) {
  SentencePieceFacts facts;
  WireReader reader(bytes, where);
  for (WireField field; reader.next(field);) {
    if (!field.is_bytes) continue;
    if (field.number == 1) facts.pieces.push_back(read_piece(field.bytes, where));
    if (field.number == 2) read_training(field.bytes, where, facts);
    if (field.number == 3) read_normalizer_spec(field.bytes, where, facts);
  }
  check(facts, where);
  return facts;
}

}  // namespace piton
