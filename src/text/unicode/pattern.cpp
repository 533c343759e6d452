#include "text/unicode/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "base/error.h"

namespace piton {
namespace {

// Limit of backtracking steps per match. A linear expression needs a few per byte.
constexpr std::uint32_t kMatchLimit = 50'000'000;

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(code, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

// Oniguruma reads "[" inside a class as a nested class and "&&" as an intersection; PCRE2 as
// characters.
bool has_nested_class(std::string_view expression) {
  bool inside = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\') {
      ++i;
    } else if (!inside) {
      if (c != '[') continue;
      inside = true;
      if (i + 1 < expression.size() && expression[i + 1] == '^') ++i;
      if (i + 1 < expression.size() && expression[i + 1] == ']') ++i;
    } else if (c == ']') {
      inside = false;
    } else if (c == '[' && expression.substr(i, 2) == "[:") {
      const std::size_t close = expression.find(":]", i);
      if (close == std::string_view::npos) return true;
      i = close + 1;
    } else if (c == '[' || expression.substr(i, 2) == "&&") {
      return true;
    }
  }
  return false;
}

// The files use Oniguruma's dialect: \w has alphabetic characters, marks, decimal digits and
// connectors like "_", and \s is Unicode white space. In PCRE2, \w also has numbers like one half
// but no marks, and \s has U+180E. So the classes are spelled out. \W inside a class has no such
// spelling.
std::string in_classes_of_pcre2(std::string_view expression) {
  constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
  // Outside a class, Oniguruma has its own table for Latin-1, in which superscripts and fractions
  // are word characters.
  constexpr std::string_view kLatin = R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";
  const std::string word = fmt::format("[{}{}]", kWord, kLatin);
  const std::string other = fmt::format("[^{}{}]", kWord, kLatin);
  const std::string border = fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word);
  const std::string no_border = fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word);
  constexpr std::pair<std::string_view, std::string_view> kNamed[] = {
      {"[:alpha:]", R"(\p{Alphabetic})"},
      {"[:alnum:]", R"(\p{Alphabetic}\p{Nd})"},
      {"[:space:]", R"(\p{White_Space})"},
      {"[:word:]", kWord}};
  std::string out;
  bool inside = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    const std::string_view rest = expression.substr(i);
    if (c == '\\' && i + 1 < expression.size()) {
      const char what = expression[++i];
      if (what == 's' || what == 'S') {
        out += what == 's' ? R"(\p{White_Space})" : R"(\P{White_Space})";
      } else if (what == 'w') {
        out += inside ? kWord : word;
      } else if (what == 'W' && !inside) {
        out += other;
      } else if ((what == 'b' || what == 'B') && !inside) {
        out += what == 'b' ? border : no_border;
      } else {
        out += rest.substr(0, 2);
      }
    } else if (!inside && c == '[') {
      inside = true;
      // "]" as the first character of a class is literal.
      std::size_t head = rest.starts_with("[^") ? 2 : 1;
      if (rest.substr(head).starts_with("]")) ++head;
      out += rest.substr(0, head);
      i += head - 1;
    } else if (inside && c == '[') {
      const auto* const named =
          std::find_if(std::begin(kNamed), std::end(kNamed),
                       [&](const auto& entry) { return rest.starts_with(entry.first); });
      const std::size_t close = rest.find(":]");
      // has_nested_class() rejected all but names.
      const std::size_t length = close == std::string_view::npos ? 1 : close + 2;
      out += named == std::end(kNamed) ? rest.substr(0, length) : named->second;
      i += length - 1;
    } else {
      if (inside && c == ']') inside = false;
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

struct Pattern::State {
  pcre2_code* code = nullptr;
  std::string expression;
  std::string where;
  ~State() { pcre2_code_free(code); }
};

Pattern::Pattern(std::string_view expression, const std::string& where)
    : state_(std::make_unique<State>()) {
  state_->expression = expression;
  state_->where = where;
  if (has_nested_class(expression)) {
    throw Error(Fault::kData,
                "{}: the expression \"{}\" has a class inside a class, which is not supported; "
                "rewrite it with one class",
                where, expression);
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Oniguruma, ^ and $ match at every line.
  constexpr std::uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C | PCRE2_MULTILINE;
  const std::string translated = in_classes_of_pcre2(expression);
  state_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                               kOptions, &error, &offset, nullptr);
  if (state_->code == nullptr) {
    throw Error(Fault::kData,
                "{}: the expression \"{}\" does not compile: {} at byte {} of "
                "\"{}\"; fix it",
                where, expression, message_of(error), offset, translated);
  }
  pcre2_jit_compile(state_->code, PCRE2_JIT_COMPLETE);  // without it, matching is only slower
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::vector<std::pair<std::size_t, std::size_t>> Pattern::matches(std::string_view text) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> data(
      pcre2_match_data_create_from_pattern(state_->code, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeContext> context(
      pcre2_match_context_create(nullptr));
  PITON_ASSERT(data != nullptr && context != nullptr);
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), 256 * 1024);  // KiB
  std::vector<std::pair<std::size_t, std::size_t>> found;
  std::size_t at = 0;
  std::uint32_t interpret = 0;
  while (at < text.size()) {
    int code = pcre2_match(state_->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                           interpret, data.get(), context.get());
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) {
      interpret = PCRE2_NO_JIT;
      continue;
    }
    if (code == PCRE2_ERROR_NOMATCH) break;
    if (code < 0) {
      throw Error(Fault::kData,
                  "{}: the expression \"{}\" cannot be matched on a text of {} bytes: {}; split "
                  "the text or simplify the expression",
                  state_->where, state_->expression, text.size(), message_of(code));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = range[0];
    const std::size_t end = range[1];
    if (end > begin) {
      found.emplace_back(begin, end);
      at = end;
      continue;
    }
    // An empty match: continue at the next character.
    at = std::max(begin, at) + 1;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) ++at;
  }
  return found;
}

}  // namespace piton
