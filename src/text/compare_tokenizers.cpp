#include "text/compare_tokenizers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <span>

namespace piton {
namespace {

// Each line has what some normalizer, cut of words or vocabulary treats in its own way.
constexpr const char* kTexts[] = {
    "The quick brown fox jumps over the lazy dog.",
    "Hello, world! It's 2024, isn't it? We'll see; they've gone, I'd say.",
    "DON'T SHOUT: WE'RE HERE, YOU'RE THERE.",
    "a b  c   d    e     f",
    " one space before",
    "   three before and two after  ",
    "a line\nanother line\n\nafter an empty one\n",
    "windows\r\nends\r\n",
    "\ttab\tseparated\t\tvalues\t",
    "1 12 123 1234 12345 3.14159 1,000,000 1e-9 0xFF 50% $9.99",
    "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // comment",
    "def f(x):\n    if x > 0:\n        return x ** 2\n",
    "{\"key\": [1, 2.5, null, true], \"text\": \"a \\\"quoted\\\" word\"}",
    "https://example.org/a/b?c=d&e=f#g user@example.com",
    "C:\\path\\to\\file.txt /usr/local/bin _snake_case CamelCase kebab-case",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia. ¿Cómo? ¡Así!",
    "Příliš žluťoučký kůň úpěl ďábelské ódy. Pchnąć w tę łódź jeża.",
    "Pijamalı hasta yağız şoföre çabucak güvendi. İstanbul ısı",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΑΒΓ αβγ",
    "נשר טוב עף מעל הים. שלום עולם",
    "نص عربي مع أرقام ١٢٣ وعلامات، ونقطة.",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า",
    "北京是中国的首都。我喜欢学习，因为它很有趣！",
    "いろはにほへと ちりぬるを。カタカナとｶﾀｶﾅ、漢字。",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.",
    "e\xCC\x81 and \xC3\xA9, o\xCC\x88 and \xC3\xB6, \xEF\xAC\x81 and fi, \xE2\x85\xA3 and IV",
    "full width \xEF\xBC\xA1\xEF\xBC\xA2\xEF\xBC\xA3 \xEF\xBC\x91\xEF\xBC\x92 \xE3\x80\x80 "
    "half",
    "no\xC2\xA0"
    "break, thin\xE2\x80\x89space, zero\xE2\x80\x8Bwidth, soft\xC2\xADhyphen",
    "“curly” ‘quotes’ – en — em … dots • bullet № ™ © ® ° ± × ÷",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋, α ∧ ¬β → ∑∫√∞ ≠ ≤ ≥",
    "\xF0\x9F\x99\x82 \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB "
    "\xF0\x9F\x87\xA9\xF0\x9F\x87\xAA \xE2\x9D\xA4\xEF\xB8\x8F \xF0\x9D\x93\x90\xF0\x9D\x93\xB7",
    "████ ▁▂▃ ─│┌ ░▒▓ ♥♦♣♠",
    "!!! ??? ... --- *** === ### @@@ ~~~ ^^^ ((())) [[]] <<>>",
    "supercalifragilisticexpialidociousantidisestablishmentarianism",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "",
};

constexpr int kPiecesOfVocabulary = 160;
constexpr std::size_t kIdsOfPiece = 6;
constexpr std::size_t kMostIdsShown = 12;

// Texts that a tokenizer may take for the name of a token are left out: two forms of one tokenizer
// may differ in whether a document can spell them.
bool spells_special(const Tokenizer& tokenizer, const std::string& text) {
  const auto plain = tokenizer.encode(text);
  return plain != tokenizer.encode(text, {.parse_special_tokens = true});
}

// Valid UTF-8 alone: what is not becomes U+FFFD in some tokenizers and bytes in others.
bool is_text(const std::string& text) {
  return text.find("\xEF\xBF\xBD") == std::string::npos &&
         complete_utf8_prefix(text) == text.size() &&
         std::ranges::none_of(text, [](char c) { return c == '\0'; });
}

std::string shown(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, complete_utf8_prefix(text.substr(0, 60)))) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '"' || c == '\\') {
      out += fmt::format("\\{}", c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
    } else {
      out += c;
    }
  }
  return "\"" + out + (text.size() > 60 ? "...\"" : "\"");
}

std::string shown(const std::vector<std::int32_t>& ids) {
  return fmt::format("{}{}",
                     fmt::join(std::span(ids).first(std::min(ids.size(), kMostIdsShown)), " "),
                     ids.size() > kMostIdsShown ? " ..." : "");
}

}  // namespace

std::vector<std::string> varied_texts(const Tokenizer& tokenizer) {
  std::vector<std::string> texts;
  const auto add = [&](const std::string& text) {
    if (is_text(text) && !spells_special(tokenizer, text)) texts.push_back(text);
  };
  const std::size_t count = std::size(kTexts);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string text = kTexts[i];
    add(text);
    add(" " + text);
    const std::size_t third = complete_utf8_prefix(text.substr(0, text.size() / 3));
    add(text.substr(0, third));
    add(text.substr(third));
    add("(" + text.substr(third) + text.substr(0, third) + ")1");
    add(text + " " + kTexts[(i * 7 + 3) % count] + "\n" + kTexts[(i * 11 + 5) % count]);
  }
  const std::int64_t size = tokenizer.vocabulary_size();
  for (int i = 0; i < kPiecesOfVocabulary; ++i) {
    std::vector<std::int32_t> ids;
    for (std::size_t k = 0; k < kIdsOfPiece; ++k) {
      // Steps of a golden section spread over the vocabulary without repeating.
      const auto place = static_cast<std::uint64_t>(i) * kIdsOfPiece + k + 1;
      const auto id = static_cast<std::int32_t>((place * 0x9E3779B97F4A7C15ULL >> 11) %
                                                static_cast<std::uint64_t>(size));
      if (!tokenizer.is_special(id)) ids.push_back(id);
    }
    add(tokenizer.decode(ids));
  }
  return texts;
}

std::string text_difference(const NamedTokenizer& a, const NamedTokenizer& b,
                            const std::vector<std::string>& texts, ComparedParts parts) {
  for (const std::string& text : texts) {
    for (const bool special : {false, true}) {
      if (special && !parts.special_tokens) continue;
      const EncodeOptions options{.add_special_tokens = special};
      const auto ids = a.tokenizer.encode(text, options);
      const auto other = b.tokenizer.encode(text, options);
      if (ids != other) {
        return fmt::format("{} is {} in {}, {} in {}{}", shown(text), shown(ids), a.name,
                           shown(other), b.name, special ? ", with special tokens" : "");
      }
      if (!parts.decoded_text) continue;
      // What is shown of unknown text is not in the vocabulary.
      const std::optional<std::int32_t> unknown = a.tokenizer.special().unk;
      if (unknown && std::ranges::find(ids, *unknown) != ids.end()) continue;
      const DecodeOptions plain{.skip_special_tokens = true};
      const std::string decoded = a.tokenizer.decode(ids, plain);
      const std::string again = b.tokenizer.decode(ids, plain);
      if (decoded != again) {
        return fmt::format("the ids {} are {} in {}, {} in {}", shown(ids), shown(decoded), a.name,
                           shown(again), b.name);
      }
    }
  }
  return "";
}

std::string first_difference(const NamedTokenizer& a, const NamedTokenizer& b) {
  if (a.tokenizer.content_hash() == b.tokenizer.content_hash()) return "";
  const std::int64_t sizes[] = {a.tokenizer.vocabulary_size(), b.tokenizer.vocabulary_size()};
  for (std::int64_t i = 0; i < std::max(sizes[0], sizes[1]); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    const std::string pieces[] = {i < sizes[0] ? a.tokenizer.piece(id) : "",
                                  i < sizes[1] ? b.tokenizer.piece(id) : ""};
    if (pieces[0] == pieces[1]) continue;
    // Spellings of one text: "<0x41>" and "A".
    const std::vector<std::int32_t> one = {id};
    if (!pieces[0].empty() && !pieces[1].empty() &&
        a.tokenizer.decode(one) == b.tokenizer.decode(one)) {
      continue;
    }
    const auto name = [](const std::string& piece) {
      return piece.empty() ? "none" : shown(piece);
    };
    return fmt::format("id {}: {} in {}, {} in {}", id, name(pieces[0]), a.name, name(pieces[1]),
                       b.name);
  }
  return text_difference(a, b, varied_texts(a.tokenizer));
}

}  // namespace piton
