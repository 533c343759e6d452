#include "faults.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "repo/source_tree.h"

namespace piton::mutate {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

// Behind the bracket that closes the one at `open`.
std::size_t behind_bracket(std::string_view code, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < code.size(); ++i) {
    if (code[i] == '(' || code[i] == '[' || code[i] == '{') ++depth;
    if (code[i] == ')' || code[i] == ']' || code[i] == '}') --depth;
    if (depth == 0) return i + 1;
  }
  return code.size();
}

void blank(std::string& code, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin; i < std::min(end, code.size()); ++i) {
    if (code[i] != '\n') code[i] = ' ';
  }
}

// Calls whose arguments are words for people or statements about the program itself.
constexpr std::string_view kUnseen[] = {"PITON_ASSERT",  "PITON_DEBUG_ASSERT",
                                        "static_assert", "assert",
                                        "format",        "say",
                                        "info",          "warning",
                                        "print",         "printf",
                                        "fail",          "reserve",
                                        "fputs"};

// Blanks what no fault is made in, in addition to what is no code: lines of the preprocessor,
// assertions, messages, and whatever is thrown.
void blank_unseen(std::string& code) {
  for (std::size_t begin = 0; begin < code.size();) {
    std::size_t end = std::min(code.find('\n', begin), code.size());
    const std::size_t first = code.find_first_not_of(' ', begin);
    if (first < end && code[first] == '#') {
      while (end > begin && end < code.size() && code[end - 1] == '\\') {
        end = std::min(code.find('\n', end + 1), code.size());
      }
      blank(code, begin, end);
    }
    begin = end + 1;
  }
  for (std::size_t i = 0; i < code.size();) {
    if (!is_word(code[i])) {
      ++i;
      continue;
    }
    std::size_t end = i;
    while (end < code.size() && is_word(code[end])) ++end;
    const std::string_view word = std::string_view(code).substr(i, end - i);
    if (word == "throw") {
      const std::size_t semicolon = std::min(code.find(';', end), code.size());
      const std::size_t bracket = code.find_first_of("({", end);
      end = bracket < semicolon ? behind_bracket(code, bracket) : semicolon;
      blank(code, i, end);
    } else if (end < code.size() && code[end] == '(' &&
               std::find(std::begin(kUnseen), std::end(kUnseen), word) != std::end(kUnseen)) {
      end = behind_bracket(code, end);
      // The name stays as a value, so that what is around it reads as before; its call is none.
      blank(code, i, end);
    }
    i = end;
  }
}

class Finder {
 public:
  Finder(std::string_view text, bool is_header)
      : text_(text), code_(repo::code_only(text)), is_header_(is_header) {
    blank_unseen(code_);
  }

  std::vector<Fault> all() {
    for (std::size_t i = 0; i < code_.size();) {
      if (is_word(code_[i])) {
        std::size_t end = i;
        if (is_digit(code_[i])) {
          end = number(i);
        } else {
          while (end < code_.size() && is_word(code_[end])) ++end;
          word(i, end);
        }
        i = end;
      } else {
        i = sign(i);
      }
    }
    return std::move(faults_);
  }

 private:
  void add(std::size_t at, std::size_t size, std::string to, const char* kind) {
    faults_.push_back(
        {.at = at, .from = std::string(text_.substr(at, size)), .to = std::move(to), .kind = kind});
  }

  // clang-format puts blanks around binary operators, and none around template brackets, pointers
  // and references.
  std::size_t sign(std::size_t i) {
    std::size_t end = i;
    while (end < code_.size() && std::string_view("<>=!+-*/%&|").find(code_[end]) != npos) ++end;
    if (end == i) return i + 1;
    const bool apart = i > 0 && (code_[i - 1] == ' ' || code_[i - 1] == '\n') &&
                       end < code_.size() && (code_[end] == ' ' || code_[end] == '\n');
    if (!apart) return end;
    static const std::map<std::string_view, std::pair<const char*, const char*>> others = {
        {"<", {"<=", "relation"}},    {"<=", {"<", "relation"}},    {">", {">=", "relation"}},
        {">=", {">", "relation"}},    {"==", {"!=", "relation"}},   {"!=", {"==", "relation"}},
        {"+", {"-", "arithmetic"}},   {"-", {"+", "arithmetic"}},   {"*", {"/", "arithmetic"}},
        {"/", {"*", "arithmetic"}},   {"%", {"*", "arithmetic"}},   {"+=", {"-=", "arithmetic"}},
        {"-=", {"+=", "arithmetic"}}, {"*=", {"/=", "arithmetic"}}, {"/=", {"*=", "arithmetic"}},
        {"&&", {"||", "logic"}},      {"||", {"&&", "logic"}}};
    const auto found = others.find(std::string_view(code_).substr(i, end - i));
    if (found != others.end()) add(i, end - i, found->second.first, found->second.second);
    return end;
  }

  std::size_t number(std::size_t i) {
    std::size_t end = i;
    const bool hexadecimal =
        code_[i] == '0' && i + 1 < code_.size() && std::tolower(code_[i + 1]) == 'x';
    while (end < code_.size() && (is_word(code_[end]) || code_[end] == '.' || code_[end] == '\'' ||
                                  ((code_[end] == '+' || code_[end] == '-') && !hexadecimal &&
                                   std::tolower(code_[end - 1]) == 'e'))) {
      ++end;
    }
    // A pure virtual function, an index of a template, a number in a name's place.
    const std::string_view before = trimmed_before(i);
    if (hexadecimal || before.ends_with(") =") || before.ends_with("const =") ||
        before.ends_with("<") || code_.substr(end, 1) == ">") {
      return end;
    }
    const std::string_view digits = text_.substr(i, end - i);
    const std::size_t size = std::min(digits.find_first_not_of("0123456789'"), digits.size());
    const std::string_view suffix = digits.substr(size);
    const bool starts_a_member = is_header_ && before.ends_with("=") && code_.substr(end, 1) == ";";
    const bool real = suffix.starts_with('.') || suffix.starts_with('e');
    if (real) {
      // Zero and its double are one.
      const bool zero = digits.find_first_of("123456789") == npos;
      if (!(starts_a_member && zero))
        add(i, end - i, zero ? "1.0" : "2 * " + std::string(digits), "constant");
      return end;
    }
    std::string plain(digits.substr(0, size));
    std::erase(plain, '\'');
    if (plain.size() > 9 || (starts_a_member && plain == "0")) return end;
    add(i, end - i, std::to_string(std::stol(plain) + 1) + std::string(suffix), "constant");
    return end;
  }

  void word(std::size_t i, std::size_t end) {
    const std::string_view name = std::string_view(code_).substr(i, end - i);
    if (name == "true") add(i, 4, "false", "constant");
    if (name == "false" && !(is_header_ && trimmed_before(i).ends_with("="))) {
      add(i, 5, "true", "constant");
    }
    if (name == "if") negation(end);
    call(i, end);
  }

  // if (condition): its negation, also behind an initial statement.
  void negation(std::size_t end) {
    if (end + 1 >= code_.size() || code_[end] != ' ' || code_[end + 1] != '(') return;
    const std::size_t close = behind_bracket(code_, end + 1) - 1;
    std::size_t begin = end + 2;
    const std::size_t semicolon = code_.find(';', begin);
    if (semicolon < close) begin = semicolon + 1;
    const std::string_view condition = std::string_view(code_).substr(begin, close - begin);
    const bool declares = condition.find(" = ") != npos;
    if (declares || condition.empty()) return;
    const std::string whole(text_.substr(begin, close - begin));
    add(begin, close - begin, (whole.starts_with(' ') ? " !(" : "!(") + whole + ")", "negation");
  }

  // A call that is a separate statement: names with . -> and :: between, then brackets, then the
  // end. A declaration has two names side by side.
  void call(std::size_t i, std::size_t end) {
    const std::string_view before = trimmed_before(i);
    const bool begins = before.empty() || before.ends_with(';') || before.ends_with('{') ||
                        before.ends_with('}') || before.ends_with(')') || before.ends_with("else");
    if (!begins) return;
    static constexpr std::string_view kNoCalls[] = {"return", "if",    "while",  "for",
                                                    "switch", "else",  "case",   "delete",
                                                    "using",  "catch", "sizeof", "static_cast"};
    const std::string_view name = std::string_view(code_).substr(i, end - i);
    if (std::find(std::begin(kNoCalls), std::end(kNoCalls), name) != std::end(kNoCalls)) return;
    std::size_t at = end;
    while (at < code_.size()) {
      const std::string_view rest = std::string_view(code_).substr(at);
      if (rest.starts_with("->") || rest.starts_with("::")) {
        at += 2;
      } else if (rest.starts_with(".") || is_word(rest[0])) {
        ++at;
      } else if (rest.starts_with("[")) {
        at = behind_bracket(code_, at);
      } else {
        break;
      }
    }
    if (at >= code_.size() || code_[at] != '(') return;
    at = behind_bracket(code_, at);
    if (at >= code_.size() || code_[at] != ';') return;
    // Lines are kept, so that every fault has the line that its source has.
    std::string nothing("{");
    for (const char c : text_.substr(i, at - i)) {
      if (c == '\n') nothing += '\n';
    }
    add(i, at + 1 - i, nothing + "}", "call");
  }

  std::string_view trimmed_before(std::size_t i) const {
    const std::size_t last = i == 0 ? npos : std::string_view(code_).find_last_not_of(" \n", i - 1);
    return last == npos ? std::string_view() : std::string_view(code_).substr(0, last + 1);
  }

  static constexpr std::size_t npos = std::string_view::npos;
  std::string_view text_;
  std::string code_;
  bool is_header_;
  std::vector<Fault> faults_;
};

}  // namespace

std::vector<Fault> faults_in(std::string_view text, bool is_header) {
  return Finder(text, is_header).all();
}

std::string with_fault(std::string_view text, const Fault& fault) {
  std::string changed(text);
  changed.replace(fault.at, fault.from.size(), fault.to);
  return changed;
}

std::size_t line_of(std::string_view text, std::size_t at) {
  return 1 + static_cast<std::size_t>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

}  // namespace piton::mutate
