#include "tasks/answers/math_problems.h"

#include <algorithm>
#include <array>
#include <vector>

#include "tasks/answers/math_answers.h"
#include "tasks/answers/python_text.h"
#include "text/unicode/pattern.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// REMOVED_EXPRESSIONS, those of letters and the others, in their order.
struct RemovedText {
  std::string_view text;
  bool is_word;
};
constexpr auto kRemoved = std::to_array<RemovedText>({{"square", true},
                                                      {"ways", true},
                                                      {"integers", true},
                                                      {"dollars", true},
                                                      {"mph", true},
                                                      {"inches", true},
                                                      {"ft", true},
                                                      {"hours", true},
                                                      {"km", true},
                                                      {"units", true},
                                                      {"\\ldots", false},
                                                      {"sue", true},
                                                      {"points", true},
                                                      {"feet", true},
                                                      {"minutes", true},
                                                      {"digits", true},
                                                      {"cents", true},
                                                      {"degrees", true},
                                                      {"cm", true},
                                                      {"gm", true},
                                                      {"pounds", true},
                                                      {"meters", true},
                                                      {"meals", true},
                                                      {"edges", true},
                                                      {"students", true},
                                                      {"childrentickets", true},
                                                      {"multiples", true},
                                                      {"\\text{s}", false},
                                                      {"\\text{.}", false},
                                                      {"\\text{\ns}", false},
                                                      {"\\text{}^2", false},
                                                      {"\\text{}^3", false},
                                                      {"\\text{\n}", false},
                                                      {"\\text{}", false},
                                                      {"\\mathrm{th}", false},
                                                      {"^\\circ", false},
                                                      {"^{\\circ}", false},
                                                      {"\\;", false},
                                                      {",\\!", false},
                                                      {"{,}", false},
                                                      {"\"", false},
                                                      {"\\dots", false}});

constexpr std::array<std::array<std::string_view, 2>, 10> kSubstitutions = {
    {{"an ", ""},
     {"a ", ""},
     {".$", "$"},
     {"\\$", ""},
     {"\\ ", ""},
     {" ", ""},
     {"mbox", "text"},
     {",\\text{and}", ","},
     {"\\text{and}", ","},
     {"\\text{m}", "\\text{}"}}};

std::string without_matches(const std::string& expression, const std::string& text) {
  std::string out;
  std::size_t at = 0;
  for (const auto& [begin, end] : Pattern(expression, "unit").matches(text)) {
    out.append(text, at, begin - at);
    at = end;
  }
  return out.append(text, at, text.npos);
}

bool is_latin_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Removes `word` outside of commands of LaTeX.
std::string without_word(const std::string& text, std::string_view word) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;  // of the text before a command
    while (end < text.size() &&
           !(text[end] == '\\' && end + 1 < text.size() && is_latin_letter(text[end + 1])))
      ++end;
    out += python_replaced(std::string_view(text).substr(at, end - at), word, "");
    at = end;
    if (at == text.size()) break;
    ++end;
    while (end < text.size() && is_latin_letter(text[end])) ++end;
    out.append(text, at, end - at);
    at = end;
  }
  return out;
}

// Of a line with two dollars only what is between the first two, with them.
std::string kept_between_dollars(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::size_t first = line.find('$');
    const std::size_t second = first == line.npos ? first : line.find('$', first + 1);
    out += second == line.npos ? line : line.substr(first, second + 1 - first);
    if (end == text.size()) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

// Removes `open` and the brace that ends it: the first one, or the last one of the line.
std::string unwrapped(std::string_view text, std::string_view open, bool last) {
  std::string out;
  while (true) {
    const std::size_t begin = text.find(open);
    if (begin == text.npos) return out.append(text);
    const std::size_t inside = begin + open.size();
    const std::string_view line =
        text.substr(inside, std::min(text.find('\n', inside), text.size()) - inside);
    const std::size_t close = last ? line.rfind('}') : line.find('}');
    if (close == line.npos) {
      out += text.substr(0, begin + 1);
      text.remove_prefix(begin + 1);
      continue;
    }
    out += text.substr(0, begin);
    out += line.substr(0, close);
    text.remove_prefix(inside + close + 1);
  }
}

std::string_view character_at(std::string_view text, std::size_t at) {
  return at >= text.size() ? "" : text.substr(at, decode_utf8(text, at).length);
}

// \frac12 is \frac{1}{2}.
std::string with_braced_fractions(std::string_view text) {
  std::string out;
  while (true) {
    const std::size_t begin = text.find("frac");
    if (begin == text.npos) return out.append(text);
    const std::size_t at = begin + 4;
    const std::string_view top = character_at(text, at);
    const std::string_view bottom = character_at(text, at + top.size());
    out += text.substr(0, at);
    text.remove_prefix(at);
    if (top.empty() || top == "{" || bottom.empty() || bottom == "\n") continue;
    out += "{" + std::string(top) + "}{" + std::string(bottom) + "}";
    text.remove_prefix(top.size() + bottom.size());
  }
}

std::string_view without_last_character(std::string_view text) {
  std::size_t size = text.size() - 1;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return text.substr(0, size);
}

bool is_word_character(std::string_view character) {
  return !character.empty() && !Pattern("\\w", "root").matches(character).empty();
}

// \sqrt[3]a is \sqrt[3]{a}, and \sqrta is \sqrt{a}.
std::string with_braced_roots(std::string_view text, bool indexed) {
  std::string out;
  while (true) {
    const std::size_t begin = text.find("sqrt");
    if (begin == text.npos) return out.append(text);
    std::size_t at = begin + 4;
    const bool has_index = character_at(text, at) == "[";
    if (indexed && has_index) at = std::min(text.find(']', at), text.size() - 1) + 1;
    const std::string_view argument = character_at(text, at);
    const bool braced = indexed ? has_index && text[at - 1] == ']' && is_word_character(argument)
                                : !has_index && !argument.empty() && argument != "{";
    if (!braced) at = begin + 4;
    out += text.substr(0, at);
    text.remove_prefix(at);
    if (!braced) continue;
    out += "{" + std::string(argument) + "}";
    text.remove_prefix(argument.size());
  }
}

}  // namespace

std::optional<std::string> boxed_answer(std::string_view solution) {
  constexpr std::string_view kBare = "\\boxed ";
  constexpr std::string_view kBox = "\\boxed{";
  const std::size_t bare = solution.rfind(kBare);
  if (bare != solution.npos) {
    const std::string_view rest = solution.substr(bare + kBare.size());
    return std::string(rest.substr(0, rest.find('$')));
  }
  const std::size_t begin = solution.rfind("\\boxed");
  if (begin == solution.npos || !solution.substr(begin).starts_with(kBox)) return std::nullopt;
  int open = 0;
  for (std::size_t at = begin; at < solution.size(); ++at) {
    if (solution[at] == '{') ++open;
    if (solution[at] != '}' || --open > 0) continue;
    const std::size_t inside = begin + kBox.size();
    return std::string(solution.substr(inside, at - inside));
  }
  return std::nullopt;
}

std::string answer_in_dollars(std::string_view text) {
  const std::size_t first = text.find('$');
  const std::size_t last = text.rfind('$');
  if (first == last) return std::string(text);
  return std::string(text.substr(first + 1, last - first - 1));
}

std::string hendrycks_form(std::string_view answer) {
  const std::optional<std::string> form = math_form(std::string(answer), true);
  return form ? "form " + *form : "as written " + std::string(answer);
}

std::string minerva_answer(std::string_view text) {
  const std::string whole = std::string(text) + "I hope it is correct.";
  // A full stop in the pattern is any character, as there.
  constexpr std::string_view kBegin = "Final Answer: The final answer is";
  constexpr std::string_view kEnd = " I hope it is correct";
  const Pattern pattern(std::string(kBegin) + ".*?." + std::string(kEnd) + ".", "final answer");
  const auto matches = pattern.matches(whole);
  if (matches.empty()) return "[invalidanswer]";
  const auto [begin, end] = matches.front();
  std::string_view found = std::string_view(whole).substr(begin, end - begin);
  found = without_last_character(found.substr(kBegin.size()));
  found = without_last_character(found.substr(0, found.size() - kEnd.size()));
  return std::string(python_stripped(found));
}

std::string minerva_form(std::string_view answer) {
  const std::size_t equals = answer.rfind('=');
  std::string text(equals == answer.npos ? answer : answer.substr(equals + 1));
  for (const RemovedText& one : kRemoved) {
    if (one.is_word) text = without_matches("(?<!\\\\)\\b" + std::string(one.text) + "\\b", text);
  }
  for (const auto& [from, to] : kSubstitutions) text = python_replaced(text, from, to);
  for (const RemovedText& one : kRemoved)
    text = one.is_word ? without_word(text, one.text) : python_replaced(text, one.text, "");
  text = kept_between_dollars(text);
  text = unwrapped(text, "\\text{", false);
  text = unwrapped(text, "\\textbf{", false);
  text = unwrapped(text, "\\overline{", false);
  text = unwrapped(text, "\\boxed{", true);
  text = with_braced_fractions(text);
  text = with_braced_roots(text, true);
  text = with_braced_roots(text, false);
  std::erase(text, '$');
  if (!Pattern("\\A-?\\d{1,3}(,\\d{3})+\\z", "number").matches(text).empty()) std::erase(text, ',');
  return text;
}

}  // namespace piton
