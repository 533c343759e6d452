#include "generate/constraints/regular_expression.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

using Part = GrammarBuilder::Part;

constexpr std::int64_t kMostRepetitions = 100'000;
constexpr int kDeepestGroup = 100;

const CharacterSet kDigits = {{'0', '9'}};
const CharacterSet kWord = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharacterSet kSpaces = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},
                              {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                              {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                              {0xFEFF, 0xFEFF}, {0x1C, 0x1F},     {0x85, 0x85}};
const CharacterSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

CharacterSet within_ascii(const CharacterSet& set) {
  CharacterSet ascii;
  for (const ScalarRange& range : set) {
    if (range.first < 0x80) ascii.push_back({range.first, std::min<char32_t>(range.last, 0x7F)});
  }
  return ascii;
}

class RegexReader {
 public:
  RegexReader(GrammarBuilder& grammar, std::string_view pattern, RegexOptions options,
              std::string_view where)
      : grammar_(grammar), pattern_(pattern), options_(options), where_(where) {
    if (valid_utf8_prefix(pattern) != pattern.size())
      throw Error(Fault::kUsage, "{}: the regular expression is not UTF-8", where);
  }

  Part read() {
    std::vector<Part> alternatives;
    do {
      alternatives.push_back(outer_alternative());
    } while (take('|'));
    if (at_ < pattern_.size()) fail("found ) without (");
    return grammar_.choice(std::move(alternatives));
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(Fault::kUsage, "{}: regular expression \"{}\", byte {}: {}", where_, pattern_,
                at_ + 1, what);
  }
  bool has(char c) const { return at_ < pattern_.size() && pattern_[at_] == c; }
  bool take(char c) {
    if (!has(c)) return false;
    ++at_;
    return true;
  }
  char32_t character() {
    const Utf8Char c = decode_utf8(pattern_, at_);
    at_ += c.length;
    return c.value;
  }

  // An alternative of the whole expression, with anchors.
  Part outer_alternative() {
    const bool from_start = take('^');
    std::vector<Part> parts = {terms()};
    const bool to_end = take('$');
    if (!options_.anywhere) return parts.front();
    const auto anything = [&] {
      return grammar_.repeat(one_of(grammar_, complement({}), options_.form), 0, std::nullopt);
    };
    if (!from_start) parts.insert(parts.begin(), anything());
    if (!to_end) parts.push_back(anything());
    return grammar_.sequence(std::move(parts));
  }

  Part group_alternatives() {
    if (++depth_ > kDeepestGroup) fail("groups are nested too deeply");
    std::vector<Part> alternatives;
    do {
      alternatives.push_back(terms());
    } while (take('|'));
    if (has('$')) fail("$ is supported only at the end of an outer alternative");
    if (!take(')')) fail("a group has no )");
    --depth_;
    return grammar_.choice(std::move(alternatives));
  }

  Part terms() {
    std::vector<Part> parts;
    while (at_ < pattern_.size() && !has('|') && !has(')') && !has('$')) parts.push_back(term());
    return grammar_.sequence(std::move(parts));
  }

  Part term() {
    const Part one = atom();
    std::int64_t least = 0;
    std::optional<std::int64_t> most;
    if (take('*')) {
    } else if (take('+')) {
      least = 1;
    } else if (take('?')) {
      most = 1;
    } else if (!counts(least, most)) {
      return one;
    }
    take('?');  // lazy: the same texts
    if (has('*') || has('+')) fail("one repetition follows another; put the first into ( )");
    return grammar_.repeat(one, least, most);
  }

  // {n}, {n,}, {n,m}; anything else is a plain brace.
  bool counts(std::int64_t& least, std::optional<std::int64_t>& most) {
    if (!has('{')) return false;
    const std::size_t begin = at_++;
    const auto number = [&]() -> std::optional<std::int64_t> {
      const std::size_t start = at_;
      std::int64_t value = 0;
      while (at_ < pattern_.size() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
        value = std::min(value * 10 + (pattern_[at_++] - '0'), kMostRepetitions + 1);
      }
      return at_ == start ? std::nullopt : std::optional(value);
    };
    const std::optional<std::int64_t> low = number();
    std::optional<std::int64_t> high = low;
    if (low && take(',')) high = number();
    if (!low || !take('}')) fail("{ begins a number of repetitions, {n,m}; a plain brace is \\{");
    if (std::max(*low, high.value_or(0)) > kMostRepetitions) {
      at_ = begin;
      fail(fmt::format("wanted at most {} repetitions", kMostRepetitions));
    }
    if (high && *high < *low) fail("the repetitions are from more to less");
    least = *low;
    most = high;
    return true;
  }

  Part atom() {
    if (take('(')) {
      if (take('?')) {
        if (take(':')) return group_alternatives();
        take('P');
        if (!take('<') || has('=') || has('!'))
          fail("look-around and flags in (?...) are not supported");
        while (at_ < pattern_.size() && !has('>')) ++at_;
        if (!take('>')) fail("the name of a group has no >");
      }
      return group_alternatives();
    }
    if (take('[')) return one_of(grammar_, bracket(), options_.form);
    if (take('.')) return one_of(grammar_, complement(kLineEnds), options_.form);
    if (has('*') || has('+') || has('?') || has('{')) fail("nothing to repeat");
    if (has('^')) fail("^ is supported only at the beginning of an outer alternative");
    if (take('\\')) return one_of(grammar_, escape(/*in_class=*/false), options_.form);
    const char32_t c = character();
    return one_of(grammar_, {{c, c}}, options_.form);
  }

  char32_t hexadecimal(std::size_t digits) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const std::size_t digit =
          at_ < pattern_.size()
              ? std::string_view("0123456789abcdef").find(static_cast<char>(pattern_[at_] | 0x20))
              : std::string_view::npos;
      if (digit == std::string_view::npos)
        fail(fmt::format("wanted {} hexadecimal digits", digits));
      value = value * 16 + static_cast<char32_t>(digit);
      ++at_;
    }
    return value;
  }

  char32_t unicode_escape() {
    char32_t value = 0;
    if (take('{')) {
      const std::size_t end = pattern_.find('}', at_);
      if (end == std::string_view::npos || end == at_ || end - at_ > 6) fail("wanted \\u{H...}");
      value = hexadecimal(end - at_);
      ++at_;
    } else {
      value = hexadecimal(4);
      if (value >= 0xD800 && value < 0xDC00 && pattern_.substr(at_, 2) == "\\u") {
        at_ += 2;
        const char32_t low = hexadecimal(4);
        if (low >= 0xDC00 && low < 0xE000)
          value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      }
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) fail("\\u is not a character");
    return value;
  }

  // After a backslash.
  CharacterSet escape(bool in_class) {
    if (at_ >= pattern_.size()) fail("a \\ is the last character");
    const char32_t c = character();
    const auto single = [](char32_t value) { return CharacterSet{{value, value}}; };
    switch (c) {
      case 'd':
        return kDigits;
      case 'w':
        return kWord;
      case 's':
        return kSpaces;
      case 'D':
        return within_ascii(complement(kDigits));
      case 'W':
        return within_ascii(complement(kWord));
      case 'S':
        return complement(kSpaces);
      case 'n':
        return single('\n');
      case 't':
        return single('\t');
      case 'r':
        return single('\r');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case '0':
        return single(0);
      case 'x':
        return single(hexadecimal(2));
      case 'u':
        return single(unicode_escape());
      case 'b':
        if (in_class) return single('\b');
        break;
      default:
        break;
    }
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (is_letter || (c >= '1' && c <= '9')) {
      fail("this escape is not supported (word borders, references and properties are not)");
    }
    return single(c);
  }

  // After [.
  CharacterSet bracket() {
    const bool negated = take('^');
    CharacterSet set;
    bool first = true;
    while (first || !has(']')) {
      first = false;
      if (at_ >= pattern_.size()) fail("a class has no ]");
      if (has(']')) break;  // [] is empty, as in ECMAScript
      CharacterSet low = class_member();
      if (has('-') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
        ++at_;
        const CharacterSet high = class_member();
        const auto is_one = [](const CharacterSet& s) {
          return s.size() == 1 && s[0].first == s[0].last;
        };
        if (!is_one(low) || !is_one(high) || high[0].last < low[0].first)
          fail("the range in a class is not from a lower to a higher character");
        low[0].last = high[0].last;
      }
      set.insert(set.end(), low.begin(), low.end());
    }
    ++at_;
    return negated ? complement(set) : normalized(set);
  }

  CharacterSet class_member() {
    if (at_ >= pattern_.size()) fail("a class has no ]");
    if (take('\\')) return escape(/*in_class=*/true);
    const char32_t c = character();
    return {{c, c}};
  }

  GrammarBuilder& grammar_;
  std::string_view pattern_;
  RegexOptions options_;
  std::string_view where_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Part regular_expression(GrammarBuilder& grammar, std::string_view pattern, RegexOptions options,
                        std::string_view where) {
  return RegexReader(grammar, pattern, options, where).read();
}

}  // namespace piton
