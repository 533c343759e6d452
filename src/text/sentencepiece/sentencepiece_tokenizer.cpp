#include "text/sentencepiece/sentencepiece_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/sentencepiece/sentencepiece_scratch.h"
#include "text/steps/decoders.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceFacts facts, Settings settings,
                                               std::string content_hash, const std::string& where)
    : facts_(std::move(facts)), settings_(std::move(settings)), charsmap_(facts_.charsmap, where) {
  using Type = SentencePieceFacts::Type;
  if (facts_.kind != SentencePieceFacts::Kind::kBpe &&
      facts_.kind != SentencePieceFacts::Kind::kUnigram) {
    throw Error(Fault::kData,
                "{}: word and character models are not supported, wanted BPE or unigram", where);
  }
  content_hash_ = std::move(content_hash);
  if (facts_.byte_fallback) byte_ids_.assign(256, -1);
  for (std::size_t i = 0; i < facts_.pieces.size(); ++i) {
    const auto& piece = facts_.pieces[i];
    const auto id = static_cast<std::int32_t>(i);
    vocabulary_.add(piece.text, id);
    if (piece.type == Type::kUnknown) unknown_ = id;
    if (piece.type == Type::kByte && facts_.byte_fallback) {
      byte_ids_[static_cast<std::size_t>(fallback_byte(piece.text))] = id;
    }
    if (piece.type == Type::kUserDefined) {
      user_defined_.add(piece.text, id);
      has_user_defined_ = true;
    }
    if (piece.type == Type::kControl) {
      AddedToken token;
      token.id = id;
      token.content = piece.text;
      token.special = true;
      matcher_.add(token, piece.text);
    }
  }
  size_ = vocabulary_.size();
  for (const AddedToken& token : settings_.added) {
    size_ = std::max<std::int64_t>(size_, token.id + std::int64_t{1});
    matcher_.add(token, token.content);
  }
  const auto control = [this](const std::string& name) -> std::optional<std::int32_t> {
    const auto id = vocabulary_.id_of(name);
    return id && type_of(*id) == Type::kControl ? id : std::nullopt;
  };
  special_.unk = unknown_;
  special_.bos = control(facts_.begin_piece);
  special_.eos = control(facts_.end_piece);
  special_.eod = special_.eos;
  special_.pad = control(facts_.pad_piece);
  if (facts_.kind == SentencePieceFacts::Kind::kBpe) {
    name_ = "SentencePiece BPE";
    build_bpe();
    return;
  }
  name_ = "SentencePiece unigram";
  bool any = false;
  for (std::size_t i = 0; i < facts_.pieces.size(); ++i) {
    const auto& piece = facts_.pieces[i];
    if (piece.type == Type::kNormal) {
      lowest_score_ = any ? std::min(lowest_score_, piece.score) : piece.score;
      highest_score_ = std::max(highest_score_, piece.score);
      any = true;
    }
    // Encoding never uses pieces marked unused, and never finds controls and bytes in a text.
    if (piece.type == Type::kNormal || piece.type == Type::kUserDefined) {
      trie_.add(piece.text, static_cast<std::int32_t>(i));
    }
  }
}

SentencePieceTokenizer::~SentencePieceTokenizer() = default;

SentencePieceFacts::Type SentencePieceTokenizer::type_of(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= facts_.pieces.size()) {
    return SentencePieceFacts::Type::kUnused;
  }
  return facts_.pieces[static_cast<std::size_t>(id)].type;
}

std::size_t SentencePieceTokenizer::user_defined_at(std::string_view text, std::int32_t* id) const {
  std::size_t length = 0;
  std::int32_t node = Trie::kRoot;
  for (std::size_t i = 0; i < text.size(); ++i) {
    node = user_defined_.step(node, text[i]);
    if (node == Trie::kNone) break;
    if (user_defined_.value(node) != Trie::kNone) {
      length = i + 1;
      if (id != nullptr) *id = user_defined_.value(node);
    }
  }
  return length;
}

std::string SentencePieceTokenizer::normalized(std::string_view text) const {
  const std::string_view space = facts_.escape_whitespaces ? kSpace : " ";
  // take(at) sets `replacement` for the characters at `at` and returns how many bytes it replaces.
  std::string_view replacement;
  const auto take = [&](std::size_t at) -> std::size_t {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (charsmap_.empty() && !has_user_defined_ && byte < 0x80) {
      replacement = text.substr(at, 1);
      return 1;
    }
    const std::string_view rest = text.substr(at);
    if (has_user_defined_) {
      if (const std::size_t length = user_defined_at(rest, nullptr); length > 0) {
        replacement = rest.substr(0, length);
        return length;
      }
    }
    if (const Charsmap::Match match = charsmap_.longest(rest); match.length > 0) {
      replacement = match.replacement;
      return match.length;
    }
    const Utf8Char c = decode_utf8(text, at);
    replacement = c.value == kBadByte ? "\xEF\xBF\xBD" : rest.substr(0, c.length);
    return c.length;
  };
  std::string out;
  std::size_t at = 0;
  if (facts_.remove_extra_whitespaces) {
    while (at < text.size()) {
      const std::size_t length = take(at);
      if (replacement != " ") break;
      at += length;
    }
  }
  if (at == text.size()) return out;
  out.reserve((text.size() - at) * 3 / 2 + 8);
  if (facts_.add_dummy_prefix && !facts_.whitespace_as_suffix) out += space;
  bool after_space = facts_.remove_extra_whitespaces;
  while (at < text.size()) {
    at += take(at);
    std::string_view part = replacement;
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    if (!part.empty()) {
      for (const char c : part) {
        if (c == ' ') {
          out += space;
        } else {
          out.push_back(c);
        }
      }
      after_space = part.ends_with(' ');
    }
    if (!facts_.remove_extra_whitespaces) after_space = false;
  }
  if (facts_.remove_extra_whitespaces) {
    while (out.ends_with(space)) out.erase(out.size() - space.size());
  }
  if (facts_.add_dummy_prefix && facts_.whitespace_as_suffix) out += space;
  return out;
}

void SentencePieceTokenizer::encode(std::string_view text, EncodeOptions options,
                                    std::vector<std::int32_t>& out) const {
  const Loan loan(pool_, [&] {
    auto made = std::make_unique<Scratch>();
    if (merges_ != nullptr) made->merger = std::make_unique<BpeMerger>(*merges_);
    return made;
  });
  Scratch& scratch = *loan;
  if (options.add_special_tokens && settings_.add_bos && special_.bos) out.push_back(*special_.bos);
  if (matcher_.active(options.parse_special_tokens)) {
    scratch.parts.clear();
    matcher_.split(text, options.parse_special_tokens, scratch.parts);
    for (const AddedTokenMatcher::Part& part : scratch.parts) {
      if (part.id >= 0) {
        out.push_back(part.id);
      } else {
        encode_stretch(text.substr(part.begin, part.end - part.begin), scratch, out);
      }
    }
  } else {
    encode_stretch(text, scratch, out);
  }
  if (options.add_special_tokens && settings_.add_eos && special_.eos) out.push_back(*special_.eos);
}

void SentencePieceTokenizer::encode_stretch(std::string_view text, Scratch& scratch,
                                            std::vector<std::int32_t>& out) const {
  const std::string clean = normalized(text);
  if (clean.empty()) return;
  const std::size_t begin = out.size();
  if (merges_ != nullptr) {
    encode_bpe(clean, scratch, out);
  } else {
    encode_unigram(clean, scratch, out);
  }
  // A run of unknown pieces becomes one unknown id.
  const auto both_unknown = [this](std::int32_t a, std::int32_t b) {
    return a == unknown_ && b == unknown_;
  };
  out.erase(std::unique(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(), both_unknown),
            out.end());
}

void SentencePieceTokenizer::append_unknown(std::string_view text,
                                            std::vector<std::int32_t>& out) const {
  if (byte_ids_.empty()) {
    out.push_back(unknown_);
    return;
  }
  for (const char byte : text) out.push_back(byte_ids_[static_cast<unsigned char>(byte)]);
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids,
                                           DecodeOptions options) const {
  using Type = SentencePieceFacts::Type;
  std::string text;
  std::string run;  // bytes of consecutive byte pieces
  const auto flush = [&] {
    for (std::size_t at = 0; at < run.size();) {
      const Utf8Char c = decode_utf8(run, at);
      if (c.value == kBadByte) {
        text += "\xEF\xBF\xBD";
      } else {
        text.append(run, at, c.length);
      }
      at += c.length;
    }
    run.clear();
  };
  bool at_start = true;
  bool space_eaten = false;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size_) continue;
    if (type_of(id) == Type::kByte) {
      run.push_back(
          static_cast<char>(fallback_byte(facts_.pieces[static_cast<std::size_t>(id)].text)));
      continue;
    }
    flush();
    if (space_eaten || !text.empty()) at_start = false;
    space_eaten = false;
    if (is_special(id)) {
      // As in SentencePiece, controls decode to nothing. Tokens that are not from the file decode
      // to their names.
      const bool control = type_of(id) == Type::kControl;
      if (!options.skip_special_tokens && !control && id != unknown_) text += this->piece(id);
      if (!options.skip_special_tokens && id == unknown_) text += facts_.unknown_surface;
      continue;
    }
    const std::string spelt = this->piece(id);
    std::string_view piece = spelt;
    const bool eats = facts_.add_dummy_prefix || facts_.remove_extra_whitespaces;
    if (at_start && eats && piece.starts_with(kSpace)) {
      piece.remove_prefix(kSpace.size());
      space_eaten = !facts_.remove_extra_whitespaces;
    }
    while (!piece.empty()) {
      const std::size_t space = piece.find(kSpace);
      text.append(piece.substr(0, space));
      if (space == std::string_view::npos) break;
      text.push_back(' ');
      piece.remove_prefix(space + kSpace.size());
    }
  }
  flush();
  return text;
}

std::string SentencePieceTokenizer::piece(std::int32_t id) const {
  if (vocabulary_.has(id)) return vocabulary_.piece(id);
  for (const AddedToken& token : settings_.added) {
    if (token.id == id) return token.content;
  }
  return "";
}

std::optional<std::int32_t> SentencePieceTokenizer::id_of(std::string_view piece) const {
  if (const auto id = vocabulary_.id_of(piece)) return id;
  for (const AddedToken& token : settings_.added) {
    if (token.content == piece) return token.id;
  }
  return std::nullopt;
}

bool SentencePieceTokenizer::is_special(std::int32_t id) const {
  if (id == unknown_ || type_of(id) == SentencePieceFacts::Type::kControl) return true;
  return std::any_of(settings_.added.begin(), settings_.added.end(),
                     [id](const AddedToken& token) { return token.id == id && token.special; });
}

bool SentencePieceTokenizer::open_ended(std::int32_t id) const {
  return type_of(id) == SentencePieceFacts::Type::kByte;
}

}  // namespace piton
