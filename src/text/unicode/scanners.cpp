#include "text/unicode/scanners.h"

namespace piton {

namespace {

using Kind = Scanner::Kind;

struct KnownPattern {
  std::string_view pattern;
  Scanner scanner;
};

// The first of a scanner is the one that files are written with.
constexpr KnownPattern kKnown[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     {Kind::kGpt2, 0}},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
     {Kind::kGpt2, 0}},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)",
     {Kind::kGpt2, 0}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {Kind::kCl100k, 3}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {Kind::kCl100k, 1}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {Kind::kCl100k, 2}},
    {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     {Kind::kCl100k, 1, true}},
    {R"( ?[^(\s|[.,!?…。，、।۔،])]+)", {Kind::kBloom, 0}},
};

}  // namespace

std::optional<Scanner> Scanner::for_pattern(std::string_view pattern) {
  for (const KnownPattern& known : kKnown) {
    if (known.pattern == pattern) return known.scanner;
  }
  return std::nullopt;
}

std::string_view Scanner::pattern() const {
  for (const KnownPattern& known : kKnown) {
    if (known.scanner == *this) return known.pattern;
  }
  return "";
}

bool scan::is_bloom_break(char32_t c) {
  switch (c) {
    case '(':
    case ')':
    case '|':
    case '.':
    case ',':
    case '!':
    case '?':
    case U'…':
    case U'。':
    case U'，':
    case U'、':
    case U'।':
    case U'۔':
    case U'،':
      return true;
    default:
      return is_white_space(c);
  }
}

}  // namespace piton
