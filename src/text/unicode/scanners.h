// Hand-written pre-tokenizers of the byte-level families: each splits a text into the matches of a
// known regular expression, from left to right, with one load per character.
//
//   kGpt2   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   kCl100k (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,k}
//           | ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//           k = 3 in cl100k and LLaMA-3, 1 in Qwen; with marks, as in Qwen 3.5, the runs are
//           [\p{L}\p{M}]+ and [^\s\p{L}\p{M}\p{N}]+
//   kBloom  matches of  ?[^(\s|[.,!?…。，、।۔،])]+  and the text between them (Oniguruma's nested
//           class: no white space, none of ()|.,!?…。，、।۔،)
//   kBert   runs without white space, punctuation (is_bert_punctuation) cut out character by
//           character
//
// Bytes that are not UTF-8 count as characters of no class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "text/unicode/characters.h"

namespace piton {

struct Scanner {
  enum class Kind { kGpt2, kCl100k, kBloom, kBert };
  Kind kind = Kind::kGpt2;
  int digits = 3;      // kCl100k: the longest run of numbers in one word
  bool marks = false;  // kCl100k: marks count as letters

  bool operator==(const Scanner&) const = default;

  // The scanner that does what `pattern` says; none if it is not a known one.
  static std::optional<Scanner> for_pattern(std::string_view pattern);
  // The other way; "" for kBert.
  std::string_view pattern() const;
};

namespace scan {

struct Cursor {
  const CharacterTable& table;
  const char* end;

  Utf8Char at(const char* p) const {
    const auto byte = static_cast<unsigned char>(*p);
    if (byte < 0x80) return {byte, 1};
    return decode_utf8(p, end);
  }
  // The end of the run of characters whose flags `wanted` accepts.
  template <typename Wanted>
  const char* run(const char* p, Wanted wanted) const {
    while (p < end) {
      const Utf8Char c = at(p);
      if (!wanted(table.flags(c.value))) break;
      p += c.length;
    }
    return p;
  }
  const char* letters(const char* p) const {
    return run(p, [](std::uint8_t f) { return (f & CharacterTable::kLetter) != 0; });
  }
  const char* others(const char* p) const { return run(p, is_other); }

  static bool is_other(std::uint8_t f) {
    return (f & (CharacterTable::kLetter | CharacterTable::kNumber | CharacterTable::kSpace)) == 0;
  }
};

// Length of 's 't 're 've 'm 'll 'd at `p`, which is an apostrophe; 0 if none.
inline std::size_t contraction(const char* p, const char* end, bool any_case) {
  if (end - p < 2) return 0;
  const int fold = any_case ? 0x20 : 0;
  const int a = p[1] | fold;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  // U+017F, the long s, counts as an s.
  if (any_case && end - p >= 3 && p[1] == '\xC5' && p[2] == '\xBF') return 3;
  if (end - p < 3) return 0;
  const int b = p[2] | fold;
  return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

// The end of the white space at `p`: \s+(?!\S)|\s+ leaves the last space to the next word.
inline const char* spaces(const Cursor& cursor, const char* p) {
  const char* start = p;
  const char* last = p;
  while (p < cursor.end) {
    const Utf8Char c = cursor.at(p);
    if (!cursor.table.has(c.value, CharacterTable::kSpace)) return last == start ? p : last;
    last = p;
    p += c.length;
  }
  return p;
}

template <typename Word>
void gpt2(const CharacterTable& table, std::string_view text, Word&& word) {
  const Cursor cursor{table, text.data() + text.size()};
  const char* p = text.data();
  while (p < cursor.end) {
    const char* start = p;
    if (*p == '\'') {
      if (const std::size_t length = contraction(p, cursor.end, false); length != 0) {
        p += length;
        word(std::string_view(start, length));
        continue;
      }
    }
    Utf8Char c = cursor.at(p);
    std::uint8_t flags = table.flags(c.value);
    if (c.value == ' ' && p + 1 < cursor.end) {
      const Utf8Char next = cursor.at(p + 1);
      const std::uint8_t next_flags = table.flags(next.value);
      if ((next_flags & CharacterTable::kSpace) == 0) {
        ++p;
        c = next;
        flags = next_flags;
      }
    }
    if (flags & CharacterTable::kLetter) {
      p = cursor.letters(p + c.length);
    } else if (flags & CharacterTable::kNumber) {
      p = cursor.run(p + c.length,
                     [](std::uint8_t f) { return (f & CharacterTable::kNumber) != 0; });
    } else if (flags & CharacterTable::kSpace) {
      p = spaces(cursor, p);
    } else {
      p = cursor.others(p + c.length);
    }
    word(std::string_view(start, static_cast<std::size_t>(p - start)));
  }
}

template <typename Word>
void cl100k(const CharacterTable& table, const Scanner& scanner, std::string_view text,
            Word&& word) {
  const Cursor cursor{table, text.data() + text.size()};
  const auto letter = static_cast<std::uint8_t>(CharacterTable::kLetter |
                                                (scanner.marks ? CharacterTable::kMark : 0));
  const auto is_letter = [letter](std::uint8_t f) { return (f & letter) != 0; };
  const auto is_other = [letter](std::uint8_t f) {
    return (f & (letter | CharacterTable::kNumber | CharacterTable::kSpace)) == 0;
  };
  const char* p = text.data();
  const auto newlines = [&cursor](const char* q) {
    while (q < cursor.end && (*q == '\r' || *q == '\n')) ++q;
    return q;
  };
  while (p < cursor.end) {
    const char* start = p;
    const Utf8Char c = cursor.at(p);
    const std::uint8_t flags = table.flags(c.value);
    std::size_t length = 0;
    if (c.value == '\'') length = contraction(p, cursor.end, true);
    if (length != 0) {
      p += length;
    } else if (is_letter(flags)) {
      p = cursor.run(p + c.length, is_letter);
    } else if (flags & CharacterTable::kNumber) {
      p += c.length;
      for (int n = 1; n < scanner.digits && p < cursor.end; ++n) {
        const Utf8Char next = cursor.at(p);
        if (!table.has(next.value, CharacterTable::kNumber)) break;
        p += next.length;
      }
    } else {
      const char* after = p + c.length;
      const bool has_next = after < cursor.end;
      const Utf8Char next = has_next ? cursor.at(after) : Utf8Char{kBadByte, 0};
      const std::uint8_t next_flags = has_next ? table.flags(next.value) : 0;
      if (is_letter(next_flags) && c.value != '\r' && c.value != '\n') {
        p = cursor.run(after + next.length, is_letter);
      } else if (!(flags & CharacterTable::kSpace)) {
        p = newlines(cursor.run(after, is_other));
      } else if (c.value == ' ' && has_next && is_other(next_flags)) {
        p = newlines(cursor.run(after + next.length, is_other));
      } else {
        // White space: up to its last line end, else all but its last character before a word.
        const char* line_end = nullptr;
        const char* last = p;
        const char* q = p;
        while (q < cursor.end) {
          const Utf8Char s = cursor.at(q);
          if (!table.has(s.value, CharacterTable::kSpace)) break;
          last = q;
          q += s.length;
          if (s.value == '\r' || s.value == '\n') line_end = q;
        }
        if (line_end != nullptr) {
          p = line_end;
        } else {
          p = q == cursor.end || last == p ? q : last;
        }
      }
    }
    word(std::string_view(start, static_cast<std::size_t>(p - start)));
  }
}

bool is_bloom_break(char32_t c);

template <typename Word>
void bloom(const CharacterTable&, std::string_view text, Word&& word) {
  const char* const end = text.data() + text.size();
  const char* p = text.data();
  const char* gap = p;  // start of the text that is in no word yet
  while (p < end) {
    const char* start = p;
    if (*p == ' ') ++p;
    const char* body = p;
    while (p < end) {
      const Utf8Char c = decode_utf8(p, end);
      if (is_bloom_break(c.value)) break;
      p += c.length;
    }
    if (p == body) {
      p = start + decode_utf8(start, end).length;
      continue;
    }
    if (gap < start) word(std::string_view(gap, static_cast<std::size_t>(start - gap)));
    word(std::string_view(start, static_cast<std::size_t>(p - start)));
    gap = p;
  }
  if (gap < end) word(std::string_view(gap, static_cast<std::size_t>(end - gap)));
}

template <typename Word>
void bert(const CharacterTable& table, std::string_view text, Word&& word) {
  const Cursor cursor{table, text.data() + text.size()};
  const char* p = text.data();
  const char* start = p;  // of the run before `p`
  while (p < cursor.end) {
    const Utf8Char c = cursor.at(p);
    const std::uint8_t flags = table.flags(c.value);
    // Classes of the characters of is_bert_punctuation(): some changed class since its Unicode
    // version.
    constexpr std::uint8_t kSigns =
        CharacterTable::kPunctuation | CharacterTable::kSymbol | CharacterTable::kMark;
    const bool space = (flags & CharacterTable::kSpace) != 0;
    if (!space && ((flags & kSigns) == 0 || !is_bert_punctuation(c.value))) {
      p += c.length;
      continue;
    }
    if (start < p) word(std::string_view(start, static_cast<std::size_t>(p - start)));
    if (!space) word(std::string_view(p, c.length));
    p += c.length;
    start = p;
  }
  if (start < p) word(std::string_view(start, static_cast<std::size_t>(p - start)));
}

}  // namespace scan

// Calls word(std::string_view) for each piece of `text`, in order. Together the pieces are the
// text, except for the white space that kBert leaves out.
template <typename Word>
void scan_words(const Scanner& scanner, const CharacterTable& table, std::string_view text,
                Word&& word) {
  switch (scanner.kind) {
    case Scanner::Kind::kGpt2:
      return scan::gpt2(table, text, word);
    case Scanner::Kind::kCl100k:
      return scan::cl100k(table, scanner, text, word);
    case Scanner::Kind::kBloom:
      return scan::bloom(table, text, word);
    case Scanner::Kind::kBert:
      return scan::bert(table, text, word);
  }
}

}  // namespace piton
