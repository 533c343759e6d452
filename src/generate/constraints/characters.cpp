#include "generate/constraints/characters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using Part = GrammarBuilder::Part;

constexpr char32_t kLargest = 0x10FFFF;

// The UTF-8 of first .. last, which have the same number of bytes: `first` and `last` are their
// bytes from `at` on. All bytes after the first run over 80 .. BF, so that a range is cut into at
// most three: the rest of the first lead, whole leads, the beginning of the last one.
Part utf8_range(GrammarBuilder& grammar, std::string_view first, std::string_view last) {
  const auto low = static_cast<std::uint8_t>(first[0]);
  const auto high = static_cast<std::uint8_t>(last[0]);
  if (first.size() == 1) return grammar.bytes(low, high);
  const std::string smallest(first.size() - 1, '\x80');
  const std::string largest(first.size() - 1, '\xBF');
  const auto under = [&](std::uint8_t a, std::uint8_t b, std::string_view from,
                         std::string_view to) {
    return grammar.sequence({grammar.bytes(a, b), utf8_range(grammar, from, to)});
  };
  const std::string_view rest_of_first = first.substr(1);
  const std::string_view rest_of_last = last.substr(1);
  if (low == high) return under(low, low, rest_of_first, rest_of_last);
  std::vector<Part> parts;
  int begin = low;
  int end = high;
  if (rest_of_first != smallest) parts.push_back(under(begin++, low, rest_of_first, largest));
  if (rest_of_last != largest) {
    parts.push_back(under(high, high, smallest, rest_of_last));
    --end;
  }
  if (begin <= end) {
    parts.push_back(
        under(static_cast<std::uint8_t>(begin), static_cast<std::uint8_t>(end), smallest, largest));
  }
  return grammar.choice(std::move(parts));
}

void add_plain(GrammarBuilder& grammar, ScalarRange range, std::vector<Part>& parts) {
  constexpr std::array<char32_t, 4> kLengthEnds = {0x7F, 0x7FF, 0xFFFF, kLargest};
  for (const char32_t end : kLengthEnds) {
    if (range.first > end || range.first > range.last) continue;
    const char32_t last = std::min(range.last, end);
    std::string from;
    std::string to;
    append_utf8(range.first, from);
    append_utf8(last, to);
    parts.push_back(utf8_range(grammar, from, to));
    range.first = last + 1;
  }
}

// How JSON writes a character that must be escaped.
std::string json_escape(char32_t c) {
  const std::string quoted = nlohmann::json(std::string(1, static_cast<char>(c))).dump();
  return quoted.substr(1, quoted.size() - 2);
}

}  // namespace

CharacterSet normalized(CharacterSet set) {
  CharacterSet whole;
  for (const ScalarRange& range : set) {  // surrogates are no characters
    if (range.first < 0xD800)
      whole.push_back({range.first, std::min<char32_t>(range.last, 0xD7FF)});
    if (range.last > 0xDFFF)
      whole.push_back({std::max<char32_t>(range.first, 0xE000), std::min(range.last, kLargest)});
  }
  std::sort(whole.begin(), whole.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  CharacterSet merged;
  for (const ScalarRange& range : whole) {
    if (!merged.empty() && range.first <= merged.back().last + 1) {
      merged.back().last = std::max(merged.back().last, range.last);
    } else {
      merged.push_back(range);
    }
  }
  return merged;
}

CharacterSet complement(const CharacterSet& set) {
  CharacterSet rest;
  char32_t next = 0;
  for (const ScalarRange& range : normalized(set)) {
    if (range.first > next) rest.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLargest) rest.push_back({next, kLargest});
  return normalized(rest);
}

Part one_of(GrammarBuilder& grammar, const CharacterSet& set, TextForm form) {
  std::vector<Part> parts;
  const auto is_escaped = [](char32_t c) { return c < 0x20 || c == '"' || c == '\\'; };
  for (ScalarRange range : normalized(set)) {
    // Escaped characters are all below 0x60.
    while (form == TextForm::kJsonString && range.first < 0x60 && range.first <= range.last) {
      if (is_escaped(range.first)) {
        parts.push_back(grammar.literal(json_escape(range.first)));
      } else {
        const auto c = static_cast<std::uint8_t>(range.first);
        parts.push_back(grammar.bytes(c, c));
      }
      ++range.first;
    }
    if (range.first <= range.last) add_plain(grammar, range, parts);
  }
  return grammar.choice(std::move(parts));
}

Part json_text(GrammarBuilder& grammar, std::string_view text) {
  const std::string quoted = nlohmann::json(std::string(text)).dump();
  return grammar.literal(std::string_view(quoted).substr(1, quoted.size() - 2));
}

}  // namespace piton
