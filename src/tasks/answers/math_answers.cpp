#include "tasks/answers/math_answers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <vector>

#include "tasks/answers/python_text.h"
#include "text/unicode/pattern.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// What follows the last equals sign, without spaces before it; the whole text without one.
std::string_view after_equals(std::string_view text) {
  const std::size_t mark = text.rfind('=');
  if (mark == text.npos) return text;
  text.remove_prefix(mark + 1);
  while (text.starts_with(' ')) text.remove_prefix(1);
  return text;
}

// The contents of the last \boxed{}, up to the brace that closes it.
std::optional<std::string> boxed(std::string_view text) {
  constexpr std::string_view kBox = "\\boxed{";
  const std::size_t begin = text.rfind("\\boxed");
  if (!text.substr(begin).starts_with(kBox)) return std::nullopt;
  int open = 0;
  for (std::size_t at = begin; at < text.size(); ++at) {
    if (text[at] == '{') ++open;
    if (text[at] == '}' && --open == 0) {
      const std::size_t from = begin + kBox.size();
      return std::string(after_equals(text.substr(from, at - from)));
    }
  }
  return std::nullopt;
}

std::optional<std::string> last_match(const char* expression, std::string_view text) {
  const auto matches = Pattern(expression, "answer pattern").matches(text);
  if (matches.empty()) return std::nullopt;
  const auto [begin, end] = matches.back();
  return std::string(text.substr(begin, end - begin));
}

// parse_math_answer(): nothing if the text has no answer.
std::optional<std::string> parsed(std::string_view text) {
  if (text.find("\\boxed") != text.npos) return boxed(text);
  if (const auto found = last_match("\\$.*\\$", text)) {
    const std::string_view inside = std::string_view(*found).substr(1, found->size() - 2);
    const std::string_view answer = after_equals(inside);
    if (!answer.empty()) return std::string(answer);
  }
  if (text.find('=') == text.npos) return last_match("(?:\\$)?\\d+(?:\\.\\d+)?(?![\\w\\d])", text);
  std::string_view answer = after_equals(text);
  while (answer.ends_with('.')) answer.remove_suffix(1);
  return std::string(answer.substr(0, answer.find("\\n")));
}

std::vector<std::string_view> split(std::string_view text, std::string_view by) {
  std::vector<std::string_view> parts;
  for (std::size_t at = text.find(by); at != text.npos; at = text.find(by)) {
    parts.push_back(text.substr(0, at));
    text.remove_prefix(at + by.size());
  }
  parts.push_back(text);
  return parts;
}

// The first character; "" of no text.
std::string_view first_character(std::string_view text) {
  return text.substr(0, text.empty() ? 0 : decode_utf8(text, 0).length);
}

// \sqrt3 is \sqrt{3}. Nothing if a root has no argument, which is an error there.
std::optional<std::string> with_braces_of_roots(const std::string& text) {
  const std::vector<std::string_view> parts = split(text, "\\sqrt");
  std::string out(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string_view first = first_character(parts[i]);
    if (first.empty()) return std::nullopt;
    out += "\\sqrt";
    out += first == "{"
               ? std::string(parts[i])
               : "{" + std::string(first) + "}" + std::string(parts[i].substr(first.size()));
  }
  return out;
}

// \frac12 and \frac1{2} are \frac{1}{2}. Nothing as above.
std::optional<std::string> with_braces_of_fractions(const std::string& text) {
  const std::vector<std::string_view> parts = split(text, "\\frac");
  std::string out(parts.front());
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::string_view top = first_character(parts[i]);
    if (top.empty()) return std::nullopt;
    out += "\\frac";
    if (top == "{") {
      out += parts[i];
      continue;
    }
    const std::string_view rest = parts[i].substr(top.size());
    const std::string_view bottom = first_character(rest);
    if (bottom.empty()) return text;
    out += "{" + std::string(top) + "}";
    out += bottom == "{"
               ? std::string(rest)
               : "{" + std::string(bottom) + "}" + std::string(rest.substr(bottom.size()));
  }
  return out;
}

// As Python writes an integer.
bool is_integer(std::string_view text) {
  if (text == "0") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  return !text.empty() && text.front() != '0' &&
         std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string as_fraction(const std::string& text) {
  const std::vector<std::string_view> parts = split(text, "/");
  if (parts.size() != 2 || !is_integer(parts[0]) || !is_integer(parts[1])) return text;
  return "\\frac{" + std::string(parts[0]) + "}{" + std::string(parts[1]) + "}";
}

// Whether int() of Python reads it, of ASCII.
bool reads_as_integer(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  bool after_digit = false;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c == '_' && after_digit)) return false;
    after_digit = digit;
  }
  return after_digit;
}

}  // namespace

// _strip_string() of tasks/agieval/utils.py, strip_string() of tasks/hendrycks_math/utils.py.
std::optional<std::string> math_form(std::string text, bool strict) {
  constexpr std::array<std::array<std::string_view, 2>, 10> kChanges = {{{"\n", ""},
                                                                         {"\\!", ""},
                                                                         {"\\\\", "\\"},
                                                                         {"tfrac", "frac"},
                                                                         {"dfrac", "frac"},
                                                                         {"\\left", ""},
                                                                         {"\\right", ""},
                                                                         {"^{\\circ}", ""},
                                                                         {"^\\circ", ""},
                                                                         {"\\$", ""}}};
  for (const auto& [from, to] : kChanges) text = python_replaced(text, from, to);
  const std::vector<std::string_view> units = split(text, "\\text{ ");
  if (units.size() > 2) return std::nullopt;
  text = std::string(units.front());
  text = python_replaced(text, "\\%", "");
  text = python_replaced(text, " .", " 0.");
  text = python_replaced(text, "{.", "{0.");
  if (text.empty()) return text;
  if (text.front() == '.') text.insert(0, "0");
  const std::vector<std::string_view> sides = split(text, "=");
  if (sides.size() == 2 && python_length(sides[0]) <= 2) text = std::string(sides[1]);
  const std::optional<std::string> roots = with_braces_of_roots(text);
  if (!roots) return std::nullopt;
  const std::optional<std::string> fractions =
      with_braces_of_fractions(python_replaced(*roots, " ", ""));
  if (!fractions) return std::nullopt;
  text = *fractions == "0.5" ? "\\frac{1}{2}" : *fractions;
  const std::vector<std::string_view> ratio = split(text, "/");
  if (strict && ratio.size() == 2 && !(reads_as_integer(ratio[0]) && reads_as_integer(ratio[1])))
    return std::nullopt;
  return as_fraction(text);
}

std::string math_answer(std::string_view text) {
  const std::optional<std::string> answer = parsed(text);
  if (!answer) return "no answer";
  const std::optional<std::string> form = math_form(*answer, false);
  // An answer without a normal form equals itself alone.
  return form ? "answer " + *form : "as written " + *answer;
}

}  // namespace piton
