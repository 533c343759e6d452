#include "rollouts/final_answer.h"

#include <charconv>
#include <cmath>

#include "base/trimmed.h"
#include "tasks/answers/math_answers.h"

namespace piton {
namespace {

constexpr std::string_view kMark = "####";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == ')' || c == '_';
}

// The contents of the last \boxed{} whose braces are closed.
std::optional<std::string> boxed(std::string_view text) {
  constexpr std::string_view kBox = "\\boxed{";
  for (std::size_t begin = text.rfind(kBox); begin != text.npos;
       begin = begin == 0 ? text.npos : text.rfind(kBox, begin - 1)) {
    const std::size_t from = begin + kBox.size();
    int open = 1;
    for (std::size_t at = from; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return std::string(trimmed(text.substr(from, at - from)));
    }
  }
  return std::nullopt;
}

std::optional<std::string> after_mark(std::string_view text) {
  const std::size_t mark = text.rfind(kMark);
  if (mark == text.npos) return std::nullopt;
  text.remove_prefix(mark + kMark.size());
  return std::string(trimmed(text.substr(0, text.find('\n'))));
}

// Whether a comma at `at` is between thousands: three digits and no fourth come after it.
bool divides_thousands(std::string_view text, std::size_t at) {
  if (text[at] != ',' || at + 3 >= text.size()) return false;
  for (std::size_t i = 1; i <= 3; ++i) {
    if (!is_digit(text[at + i])) return false;
  }
  return at + 4 >= text.size() || !is_digit(text[at + 4]);
}

std::optional<std::string> last_number(std::string_view text) {
  std::optional<std::string> found;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!is_digit(text[at])) continue;
    std::size_t begin = at;
    while (at < text.size() && (is_digit(text[at]) || divides_thousands(text, at))) ++at;
    if (at + 1 < text.size() && text[at] == '.' && is_digit(text[at + 1])) {
      for (++at; at < text.size() && is_digit(text[at]);) ++at;
    }
    const bool sign =
        begin > 0 && text[begin - 1] == '-' && (begin == 1 || !is_word(text[begin - 2]));
    if (sign) --begin;
    found = std::string(text.substr(begin, at - begin));
  }
  return found;
}

// The number that an answer is; nothing if it is more than a number.
std::optional<double> number_of(std::string_view answer) {
  std::string digits;
  for (const char c : trimmed(answer)) {
    if (c != ',' && c != '$' && c != '%' && c != '\\') digits += c;
  }
  if (digits.ends_with('.')) digits.pop_back();
  std::string_view rest = digits;
  if (rest.starts_with('+')) rest.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  const bool whole = error == std::errc() && end == rest.data() + rest.size() && !rest.empty();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

bool same_answer(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const std::optional<double> x = number_of(a);
  const std::optional<double> y = number_of(b);
  if (x && y) return *x == *y;
  return math_answer("\\boxed{" + a + "}") == math_answer("\\boxed{" + b + "}");
}

}  // namespace

std::optional<std::string> final_answer(std::string_view text) {
  if (auto found = boxed(text)) return found;
  if (auto found = after_mark(text)) return found;
  return last_number(text);
}

bool answers_agree(std::string_view text, std::string_view reference) {
  const std::optional<std::string> found = final_answer(text);
  if (!found || found->empty()) return false;
  std::optional<std::string> wanted = boxed(reference);
  if (!wanted) wanted = after_mark(reference);
  if (!wanted) wanted = std::string(trimmed(reference));
  return !wanted->empty() && same_answer(*found, *wanted);
}

}  // namespace piton
