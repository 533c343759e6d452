#include "weave.h"

#include <algorithm>

#include "repo/source_tree.h"

namespace piton::mutate {
namespace {

constexpr std::size_t npos = std::string_view::npos;

bool is_blank(char c) { return c == ' ' || c == '\n'; }

// A piece of the text that gets switches: those of every fault whose piece it is.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::vector<NumberedFault> faults;
};

class Weaver {
 public:
  explicit Weaver(std::string_view text) : text_(text), code_(repo::code_only(text)) {}

  Woven weave(std::vector<NumberedFault> faults, std::string_view switch_header) {
    std::vector<Piece> pieces;
    for (NumberedFault& fault : faults) {
      const auto [begin, end] = piece_of(fault.fault);
      if (text_.substr(begin, end - begin).find("R\"") != npos || !add(pieces, begin, end, fault)) {
        result_.left_out.push_back(fault.number);
        continue;
      }
      const std::size_t word = constexpr_of(begin);
      result_.places.push_back({.number = fault.number,
                                .first_line = line_of(text_, begin),
                                .last_line = line_of(text_, end),
                                .variable = word == npos ? "" : variable_at(word)});
      if (word != npos) constants_.push_back(word);
    }
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::size_t next = 0;
    result_.text = "#include \"" + std::string(switch_header) + "\"\n#line 1\n" +
                   emitted(0, text_.size(), pieces, next);
    return std::move(result_);
  }

 private:
  // False where it overlaps with another and neither contains the other.
  static bool add(std::vector<Piece>& pieces, std::size_t begin, std::size_t end,
                  const NumberedFault& fault) {
    for (Piece& piece : pieces) {
      if (piece.begin == begin && piece.end == end && fault.fault.kind != "call" &&
          piece.faults.front().fault.kind != "call") {
        piece.faults.push_back(fault);
        return true;
      }
      const bool apart = end <= piece.begin || piece.end <= begin;
      const bool within = piece.begin <= begin && end <= piece.end;
      const bool around = begin <= piece.begin && piece.end <= end;
      if (!apart && !within && !around) return false;
    }
    pieces.push_back({begin, end, {fault}});
    return true;
  }

  std::pair<std::size_t, std::size_t> piece_of(const Fault& fault) const {
    std::size_t begin = fault.at;
    std::size_t end = fault.at + fault.from.size();
    if (fault.kind == "relation" || fault.kind == "arithmetic" || fault.kind == "logic") {
      begin = left_end(begin);
      end = right_end(end,
                      fault.from.size() == 2 && fault.from[1] == '=' && fault.kind == "arithmetic");
    }
    return {begin, end};
  }

  // --- The expression around an operator: to brackets, commas, assignments, ? : and statements.

  std::size_t left_end(std::size_t at) const {
    std::size_t i = at;
    while (i > 0) {
      const char c = code_[i - 1];
      if (c == ')' || c == ']' || c == '}') {
        if (c == '}' && !goes_on_at(i)) break;
        const std::size_t open = opening(i - 1);
        if (c == ')' && is_control(open)) break;
        i = open;
      } else if (std::string_view("([{;,?").find(c) != npos) {
        break;
      } else if (c == ':' && (i < 2 || code_[i - 2] != ':') && code_.substr(i, 1) != ":") {
        break;
      } else if (c == '=' && is_assignment(i - 1)) {
        break;
      } else if (is_word(c)) {
        std::size_t first = i;
        while (first > 0 && is_word(code_[first - 1])) --first;
        if (ends_expressions(std::string_view(code_).substr(first, i - first))) break;
        i = first;
      } else {
        --i;
      }
    }
    while (i < at && is_blank(code_[i])) ++i;
    return i;
  }

  std::size_t right_end(std::size_t at, bool assigns) const {
    std::size_t i = at;
    while (i < code_.size()) {
      const char c = code_[i];
      if (c == '(' || c == '[' || c == '{') {
        i = closing(i) + 1;
        continue;
      }
      if (std::string_view(")]};,").find(c) != npos) break;
      if (!assigns && c == '?') break;
      if (!assigns && c == ':') {
        if (code_.substr(i, 2) != "::") break;
        ++i;
      }
      ++i;
    }
    i = std::min(i, code_.size());
    while (i > at && is_blank(code_[i - 1])) --i;
    return i;
  }

  // After a brace: whether an expression continues with what it closes, as in A{1}.b + c.
  // A binary operator has a blank behind it, which a unary one at the start of a statement has not.
  bool goes_on_at(std::size_t i) const {
    while (i < code_.size() && is_blank(code_[i])) ++i;
    if (code_.substr(i, 1) == "." || code_.substr(i, 2) == "->") return true;
    const std::size_t end = std::min(code_.find_first_not_of("+-*/%<>=!&|", i), code_.size());
    return end > i && end < code_.size() && is_blank(code_[end]);
  }

  bool is_assignment(std::size_t i) const {
    const char before = i > 0 ? code_[i - 1] : ' ';
    if (i + 1 < code_.size() && code_[i + 1] == '=') return false;
    if (before == '=' || before == '!') return false;
    if (before == '<' || before == '>') return i > 1 && code_[i - 2] == before;
    return true;
  }

  // Whether the bracket at `open` is that of if (...), for (...) and the like.
  bool is_control(std::size_t open) const {
    std::size_t end = open;
    while (end > 0 && is_blank(code_[end - 1])) --end;
    std::size_t begin = end;
    while (begin > 0 && is_word(code_[begin - 1])) --begin;
    const std::string_view word = std::string_view(code_).substr(begin, end - begin);
    return word == "if" || word == "for" || word == "while" || word == "switch" ||
           word == "constexpr";
  }

  static bool ends_expressions(std::string_view word) {
    return word == "return" || word == "co_return" || word == "throw" || word == "case" ||
           word == "else" || word == "do" || word == "requires";
  }

  std::size_t opening(std::size_t close) const {
    int depth = 0;
    for (std::size_t i = close + 1; i-- > 0;) {
      if (std::string_view(")]}").find(code_[i]) != npos) ++depth;
      if (std::string_view("([{").find(code_[i]) != npos) --depth;
      if (depth == 0) return i;
    }
    return 0;
  }

  std::size_t closing(std::size_t open) const {
    int depth = 0;
    for (std::size_t i = open; i < code_.size(); ++i) {
      if (std::string_view("([{").find(code_[i]) != npos) ++depth;
      if (std::string_view(")]}").find(code_[i]) != npos) --depth;
      if (depth == 0) return i;
    }
    return code_.size() - 1;
  }

  // --- Variables that are constexpr

  // The word `constexpr` of the declaration whose value holds `at`; npos where there is none.
  std::size_t constexpr_of(std::size_t at) const {
    std::size_t i = at;
    while (i > 0) {
      const char c = code_[i - 1];
      if (c == ';') break;
      if (c == '}' || c == ')' || c == ']') {
        if (c == '}' && !is_value_brace(opening(i - 1))) break;
        if (c == ')' && is_control(opening(i - 1))) break;
        i = opening(i - 1);
        continue;
      }
      if (c == '{' && !is_value_brace(i - 1)) break;
      --i;
    }
    // Comments are blank; a declaration may follow "public:".
    const std::string_view statement = std::string_view(code_).substr(i, at - i);
    const std::size_t word = statement.find("constexpr ");
    if (word == npos || statement.find('=') == npos) {
      const bool braces = word != npos && statement.find('{') != npos;
      if (!braces) return npos;
    }
    return i + word;
  }

  // clang-format writes a block's brace after a blank.
  bool is_value_brace(std::size_t open) const {
    if (open == 0) return false;
    if (!is_blank(code_[open - 1])) return true;
    std::size_t i = open;
    while (i > 0 && is_blank(code_[i - 1])) --i;
    return i > 0 && std::string_view("=,({").find(code_[i - 1]) != npos;
  }

  // The name that the declaration at `word` gives: the last word before = or {.
  std::string variable_at(std::size_t word) const {
    std::size_t end = std::min(code_.find_first_of("={", word), code_.size());
    while (end > word && !is_word(code_[end - 1])) --end;
    std::size_t begin = end;
    while (begin > word && is_word(code_[begin - 1])) --begin;
    return std::string(text_.substr(begin, end - begin));
  }

  // What is put in the place of `constexpr`: in a class, a variable that is not constexpr is
  // defined there only where it is inline.
  std::string_view without_constexpr(std::size_t word) const {
    int depth = 0;
    for (std::size_t i = word; i-- > 0;) {
      if (code_[i] == '}') ++depth;
      if (code_[i] == '{' && depth-- == 0) {
        const std::size_t begin = i == 0 ? npos : code_.find_last_of(";{}", i - 1);
        const std::size_t first = begin == npos ? 0 : begin + 1;
        const std::string_view head = std::string_view(code_).substr(first, i - first);
        const bool in_class =
            (head.find("class ") != npos || head.find("struct ") != npos) && head.find('(') == npos;
        return in_class ? "inline const" : "const";
      }
    }
    return "const";
  }

  // --- Writing

  // begin..end with its pieces switched, from `next` on.
  std::string emitted(std::size_t begin, std::size_t end, const std::vector<Piece>& pieces,
                      std::size_t& next) const {
    std::string all;
    std::size_t at = begin;
    while (next < pieces.size() && pieces[next].begin < end) {
      const Piece& piece = pieces[next++];
      all += plain(at, piece.begin) + switched(piece, pieces, next);
      at = piece.end;
    }
    return all + plain(at, end);
  }

  std::string switched(const Piece& piece, const std::vector<Piece>& pieces,
                       std::size_t& next) const {
    if (piece.faults.front().fault.kind == "call") {
      // Its brackets end after the semicolon.
      const std::string head = "{ if (!" + question(piece.faults.front()) + ") { ";
      return head + emitted(piece.begin, piece.end, pieces, next) + " } }";
    }
    std::string head("(");
    bool is_condition = false;  // of any type that can be one
    for (const NumberedFault& fault : piece.faults) {
      head += question(fault) + " ? (" + on_one_line(piece, fault.fault) + ") : ";
      is_condition = is_condition || fault.fault.kind == "negation";
    }
    if (is_condition) head += "static_cast<bool>";
    return head + "(" + emitted(piece.begin, piece.end, pieces, next) + "))";
  }

  static std::string question(const NumberedFault& fault) {
    return "piton_fault(" + std::to_string(fault.number) + ")";
  }

  std::string on_one_line(const Piece& piece, const Fault& fault) const {
    std::string line;
    for (std::size_t i = piece.begin; i < piece.end; ++i) {
      if (i == fault.at) {
        line +=
            fault.kind == "negation" ? "!(" + on_one_line(piece.begin, piece.end) + ")" : fault.to;
        i += fault.from.size() - 1;
      } else {
        line += one(i, piece.end);
      }
    }
    return line;
  }

  std::string on_one_line(std::size_t begin, std::size_t end) const {
    std::string line;
    for (std::size_t i = begin; i < end; ++i) line += one(i, end);
    return line;
  }

  // The character at i, and i moved to the last of a comment.
  char one(std::size_t& i, std::size_t end) const {
    if (text_.substr(i, 2) == "//" && code_.substr(i, 2) == "  ") {
      const std::size_t line_end = std::min(text_.find('\n', i), end);
      if (std::string_view(code_).substr(i, line_end - i).find_first_not_of(' ') == npos) {
        i = line_end - 1;
        return ' ';
      }
    }
    return text_[i] == '\n' ? ' ' : text_[i];
  }

  std::string plain(std::size_t begin, std::size_t end) const {
    std::string all;
    for (std::size_t i = begin; i < end; ++i) {
      if (std::find(constants_.begin(), constants_.end(), i) != constants_.end()) {
        all += without_constexpr(i);
        i += std::string_view("constexpr").size() - 1;
      } else {
        all += text_[i];
      }
    }
    return all;
  }

  std::string_view text_;
  std::string code_;
  std::vector<std::size_t> constants_;  // where a word `constexpr` goes
  Woven result_;
};

}  // namespace

Woven weave(std::string_view text, std::vector<NumberedFault> faults,
            std::string_view switch_header) {
  return Weaver(text).weave(std::move(faults), switch_header);
}

}  // namespace piton::mutate
