#include "text/chat/chat_tokens.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

constexpr EncodeOptions kChatEncoding{.add_special_tokens = false, .parse_special_tokens = true};

// Finds the ids at places of a text. A tokenizer tells only the ids, and what it encodes is not the
// text itself: normalizers compose characters, and spaces are written as "▁". So a place in the
// text is found in the ids by encoding the text before it. Both results spell the same normalized
// text from its beginning, if the normalizer does not join characters over the place; ids
// may differ only at the end of the shorter one, where a longer token covers the place.
class PlaceFinder {
 public:
  PlaceFinder(const Tokenizer& tokenizer, const std::string& text,
              const std::vector<std::int32_t>& ids)
      : tokenizer_(tokenizer), text_(text), ids_(ids) {}

  // Ids that spell text[0, at) alone; and whether another id begins before the place and ends after
  // it. nullopt if the place cannot be found.
  struct Place {
    std::size_t before = 0;
    bool inside = false;
  };
  std::optional<Place> find(std::size_t at) const {
    const std::vector<std::int32_t> prefix =
        tokenizer_.encode(std::string_view(text_).substr(0, at), kChatEncoding);
    const auto [end, other] = std::mismatch(prefix.begin(), prefix.end(), ids_.begin(), ids_.end());
    if (end == prefix.end()) return Place{prefix.size(), false};
    std::string wanted;
    for (auto id = end; id != prefix.end(); ++id) wanted += spelling(*id);
    Place place{static_cast<std::size_t>(other - ids_.begin()), false};
    for (std::string_view rest = wanted; !rest.empty(); ++place.before) {
      if (place.before == ids_.size()) return std::nullopt;
      const std::string piece = spelling(ids_[place.before]);
      if (piece.size() > rest.size()) {
        if (!piece.starts_with(rest)) return std::nullopt;
        place.inside = true;
        return place;
      }
      if (!rest.starts_with(piece)) return std::nullopt;
      rest.remove_prefix(piece.size());
    }
    return place;
  }

 private:
  // The vocabulary's spelling. Ids of single bytes (<0x0A>) spell the byte, so that the spelling of
  // a text does not depend on its ids.
  std::string spelling(std::int32_t id) const {
    const std::string piece = tokenizer_.piece(id);
    if (!tokenizer_.open_ended(id)) return piece;
    constexpr std::size_t kDigits = 3;  // of "<0x0A>"
    return std::string(1, static_cast<char>(std::stoi(piece.substr(kDigits, 2), nullptr, 16)));
  }

  const Tokenizer& tokenizer_;
  const std::string& text_;
  const std::vector<std::int32_t>& ids_;
};

// Characters that a normalizer may join: a letter and marks on it, Hangul syllables.
constexpr int kMostJoined = 64;

// The place nearest to `at` that can be found, going `step` characters at a time.
PlaceFinder::Place nearest_place(const PlaceFinder& finder, const std::string& text, std::size_t at,
                                 bool forward) {
  for (int tries = 0; tries < kMostJoined; ++tries) {
    if (const auto place = finder.find(at)) return *place;
    if (forward) {
      if (at == text.size()) break;
      at += decode_utf8(text, at).length;
    } else {
      if (at == 0) break;
      at -= decode_utf8_back(std::string_view(text).substr(0, at)).length;
    }
  }
  throw Error(
      Fault::kData,
      "chat: the ids of the assistant's text cannot be found: the tokenizer writes the text "
      "near byte {} in another way if it is cut there; use another tokenizer for the mask",
      at);
}

}  // namespace

ChatTokens encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat) {
  ChatTokens tokens;
  tokens.ids = tokenizer.encode(chat.text, kChatEncoding);
  tokens.assistant.assign(tokens.ids.size(), 0);
  const PlaceFinder finder(tokenizer, chat.text, tokens.ids);
  for (const TextRange& range : chat.assistant) {
    PITON_ASSERT(range.begin <= range.end && range.end <= chat.text.size());
    if (range.begin == range.end) continue;
    const PlaceFinder::Place first = nearest_place(finder, chat.text, range.begin, false);
    const PlaceFinder::Place last = nearest_place(finder, chat.text, range.end, true);
    const std::size_t end = last.before + (last.inside ? 1 : 0);
    for (std::size_t i = first.before; i < end; ++i) tokens.assistant[i] = 1;
  }
  return tokens;
}

}  // namespace piton
