#include "tasks/answers/capital_words.h"

#include <unicode/uchar.h>

#include "tasks/answers/python_text.h"
#include "text/unicode/pattern.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// A rule of NLTKWordTokenizer: each match gets blanks around it.
struct Split {
  const char* pattern;
  std::size_t first;  // and after so many bytes of it
};
constexpr std::size_t kWhole = 0;

// In their order. Those that only divide a mark of punctuation from the end of the text are left
// out.
constexpr Split kSplits[] = {
    {"[«“‘„]|`+", kWhole},
    {"[ (\\[{<](?:\"|'{2})", 1},
    {"(?i)(?<!\\w)'(?!(?:re|ve|ll|m|t|s|d|n)\\b)(?=\\w)", kWhole},
    {"[:,][^\\d]", 1},
    {"\\.{2,}", kWhole},
    {"[;@#$%&]", kWhole},
    {"[\\x{2012}-\\x{2015}]", kWhole},
    {"[?!]", kWhole},
    {"[*]", kWhole},
    {"[\\]\\[(){}<>]", kWhole},
    {"--", kWhole},
    {"[»”’]", kWhole},
    {"''", kWhole},
    {"\"", kWhole},
    {"(?<=[^' ])'[sSmMdD](?= )", kWhole},
    {"(?<=[^' ])'(?= )", kWhole},
    {"(?<=[^' ])(?:'ll|'LL|'re|'RE|'ve|'VE|n't|N'T)(?= )", kWhole},
    {"(?i)\\bcannot\\b", 3},
    {"(?i)\\bd'ye\\b", 1},
    {"(?i)\\bgimme\\b", 3},
    {"(?i)\\bgonna\\b", 3},
    {"(?i)\\bgotta\\b", 3},
    {"(?i)\\blemme\\b", 3},
    {"(?i)\\bmore'n\\b", 4},
    {"(?i)\\bwanna(?=\\s)", 3},
    {"(?i)(?<= )'t(?:is|was)\\b", 2},
};

std::string divided(const Split& split, const std::string& text) {
  std::string out;
  std::size_t at = 0;
  for (const auto& [begin, end] : Pattern(split.pattern, "words").matches(text)) {
    out += text.substr(at, begin - at) + " ";
    if (split.first > 0) out += text.substr(begin, split.first) + " ";
    out += text.substr(begin + split.first, end - begin - split.first) + " ";
    at = end;
  }
  return out + text.substr(at);
}

bool is_upper(std::string_view word) {
  bool has_upper = false;
  for (std::size_t at = 0; at < word.size();) {
    const Utf8Char c = decode_utf8(word, at);
    at += c.length;
    if (c.value == kBadByte) continue;
    const auto point = static_cast<UChar32>(c.value);
    if (u_isULowercase(point) || u_istitle(point)) return false;
    has_upper = has_upper || u_isUUppercase(point);
  }
  return has_upper;
}

}  // namespace

std::int64_t capital_word_count(std::string text) {
  // Clitics end at a blank.
  for (const char* space : {"\n", "\t", "\r"}) text = python_replaced(text, space, " ");
  text += ' ';
  for (const Split& split : kSplits) text = divided(split, text);
  std::int64_t count = 0;
  for (const auto& [begin, end] : Pattern("\\S+", "words").matches(text))
    count += is_upper(std::string_view(text).substr(begin, end - begin)) ? 1 : 0;
  return count;
}

}  // namespace piton
