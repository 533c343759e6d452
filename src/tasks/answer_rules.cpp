#include "tasks/answer_rules.h"

#include <algorithm>

#include "tasks/answers/python_text.h"
#include "text/unicode/pattern.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

std::string without(std::string_view text, std::string_view characters) {
  std::string out(text);
  std::erase_if(out, [&](char c) { return characters.find(c) != characters.npos; });
  return out;
}

std::string ascii_lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

// str.splitlines() of Python.
bool ends_python_line(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

}  // namespace

std::string filtered_answer(const AnswerFilter& filter, std::string_view text) {
  if (filter.extract != nullptr) return filter.extract(text);
  if (filter.pattern.empty()) return std::string(text);
  const Pattern pattern(filter.pattern, "answer-pattern");
  const auto matches = pattern.matches(text);
  if (matches.empty()) return "[invalid]";
  const auto [begin, end] = filter.last ? matches.back() : matches.front();
  return std::string(python_stripped(text.substr(begin, end - begin)));
}

std::string letter_answer(std::string_view text) {
  text = python_stripped(text);
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    for (std::size_t dot = line.rfind('.'); dot != line.npos && dot > 0;
         dot = line.rfind('.', dot - 1)) {
      if (std::string_view("ABCD|").find(line[dot - 1]) != std::string_view::npos)
        return std::string(1, line[dot - 1]);
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return std::string(text.substr(0, text.empty() ? 0 : decode_utf8(text, 0).length));
}

std::string number_after_phrase(std::string_view text) {
  std::string answer = without(text.substr(0, text.find("Q:")), "$,");
  std::replace(answer.begin(), answer.end(), '.', ' ');
  answer += ' ';
  constexpr std::string_view kPhrase = "The answer is ";
  const std::size_t found = answer.find(kPhrase);
  if (found == answer.npos) return "[invalid]";
  const std::size_t begin = found + kPhrase.size();
  return std::string(python_stripped(answer.substr(begin, answer.find(' ', begin) - begin)));
}

std::string first_line(std::string_view text) {
  text = python_stripped(text);
  return std::string(python_right_stripped(text.substr(0, text.find('\n'))));
}

std::string bare_first_line(std::string_view text) {
  text = python_left_stripped(text);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (ends_python_line(c.value)) return without(text.substr(0, at), "$()");
    at += c.length;
  }
  return without(text, "$()");
}

std::string stripped_answer(std::string_view text) { return std::string(python_stripped(text)); }

std::string left_stripped_answer(std::string_view text) {
  return std::string(python_left_stripped(text));
}

std::string bare_answer(std::string_view answer) {
  return without(python_lower(answer), "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~");
}

std::string bbh_answer(std::string_view answer) {
  answer = python_stripped(answer);
  if (answer.size() == 3 && answer.front() == '(' && answer.back() == ')')
    answer = answer.substr(1, 1);
  return ascii_lower(std::string(answer));
}

std::string plain_number(std::string_view answer) {
  std::string text = without(answer, ",$");
  const std::size_t mark = text.rfind("#### ");
  if (mark != text.npos) text.erase(0, mark + 5);
  if (text.ends_with('.')) text.pop_back();
  return ascii_lower(std::move(text));
}

}  // namespace piton
