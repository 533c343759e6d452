#include "data/records/front_matter.h"

#include <utility>
#include <vector>

#include "base/error.h"
#include "base/nesting.h"
#include "data/records/byte_order_mark.h"

namespace piton {
namespace {

constexpr std::string_view kBlanks = " \t\r";

struct Line {
  std::size_t number = 0;  // in the page, from 1
  std::size_t indent = 0;
  std::string_view text;  // without indentation, comment and blanks at the end
};

std::string_view without_blanks(std::string_view text) {
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// The length of the quoted text that `text` begins with; npos if it does not end.
std::size_t quoted_length(std::string_view text) {
  const char quote = text.front();
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 == text.size() || text[i + 1] != quote) return i + 1;
      ++i;  // '' is a quote
    }
  }
  return std::string_view::npos;
}

bool is_quote(char c) { return c == '"' || c == '\''; }

// The first place of one of `ends` outside of quotes; the size of `text` if there is none.
std::size_t end_of_scalar(std::string_view text, std::string_view ends) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_quote(text[i]) && without_blanks(text.substr(0, i)).empty()) {
      const std::size_t length = quoted_length(text.substr(i));
      if (length == std::string_view::npos) return text.size();
      i += length - 1;
    } else if (ends.find(text[i]) != std::string_view::npos) {
      return i;
    }
  }
  return text.size();
}

// A comment starts at a # after a blank, outside of quotes.
std::string_view without_comment(std::string_view text) {
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts = i == 0 || std::string_view(" \t[{,").find(text[i - 1]) != text.npos;
    if (quote != 0) {
      if (text[i] == '\\' && quote == '"')
        ++i;
      else if (text[i] == quote)
        quote = 0;
    } else if (is_quote(text[i]) && starts) {
      quote = text[i];
    } else if (text[i] == '#' && (i == 0 || text[i - 1] == ' ' || text[i - 1] == '\t')) {
      return text.substr(0, i);
    }
  }
  return text;
}

class Reader {
 public:
  Reader(std::vector<Line> lines, const std::string& where)
      : lines_(std::move(lines)), where_(where) {}

  nlohmann::json value_of_all() {
    if (lines_.empty()) return nullptr;
    nlohmann::json value = block(0);
    if (at_ < lines_.size()) throw refusal("indented less than what it belongs to");
    return value;
  }

 private:
  Error refusal(std::string_view what) const {
    const std::size_t line = lines_[std::min(at_, lines_.size() - 1)].number;
    return Error(Fault::kData,
                 "{}:{}: {}; piton reads lists, maps, and texts of one line here: name the files "
                 "themselves with --input",
                 where_, line, what);
  }

  static bool is_item(std::string_view text) { return text == "-" || text.starts_with("- "); }

  // The length of a key with its colon, or 0.
  static std::size_t key_length(std::string_view text) {
    std::size_t colon = 0;
    if (is_quote(text.front())) {
      colon = quoted_length(text);
      if (colon == std::string_view::npos) return 0;
    } else {
      colon = text.find(": ");
      if (colon == std::string_view::npos)
        colon = text.ends_with(':') ? text.size() - 1 : text.size();
    }
    const bool is_key = colon < text.size() && text[colon] == ':' &&
                        (colon + 1 == text.size() || text[colon + 1] == ' ');
    return is_key ? colon + 1 : 0;
  }

  // The value that the next line begins.
  nlohmann::json block(int level) {
    if (level > kMostLevels) throw refusal("nested too deeply");
    const Line& line = lines_[at_];
    if (is_item(line.text)) return list(level);
    if (std::string_view("[{").find(line.text.front()) == std::string_view::npos &&
        key_length(line.text) > 0) {
      return map(level);
    }
    const std::string_view text = line.text;
    nlohmann::json value = scalar_or_flow(text);
    ++at_;
    return value;
  }

  nlohmann::json list(int level) {
    nlohmann::json values = nlohmann::json::array();
    const std::size_t indent = lines_[at_].indent;
    while (at_ < lines_.size() && lines_[at_].indent == indent && is_item(lines_[at_].text)) {
      Line& line = lines_[at_];
      const auto start = line.text.find_first_not_of(kBlanks, 1);
      if (start == std::string_view::npos) {
        ++at_;
        values.push_back(deeper(indent, false, level));
      } else {
        // What follows the dash is a separate line, further in.
        line.indent += start;
        line.text.remove_prefix(start);
        values.push_back(block(level + 1));
      }
    }
    return values;
  }

  nlohmann::json map(int level) {
    nlohmann::json values = nlohmann::json::object();
    const std::size_t indent = lines_[at_].indent;
    while (at_ < lines_.size() && lines_[at_].indent == indent && !is_item(lines_[at_].text)) {
      const std::string_view text = lines_[at_].text;
      const std::size_t length = key_length(text);
      if (length == 0) throw refusal("neither a key nor an item of a list");
      const nlohmann::json key = scalar(text.substr(0, length - 1));
      const std::string_view rest = without_blanks(text.substr(length));
      if (rest.empty()) {
        ++at_;
        values[key.get<std::string>()] = deeper(indent, true, level);
      } else {
        values[key.get<std::string>()] = scalar_or_flow(rest);
        ++at_;
      }
    }
    if (at_ < lines_.size() && lines_[at_].indent > indent) throw refusal("indented too far");
    return values;
  }

  // The lines further in than `indent`; the list of a key may be as far in as the key.
  nlohmann::json deeper(std::size_t indent, bool of_key, int level) {
    if (at_ == lines_.size()) return nullptr;
    const Line& line = lines_[at_];
    const bool belongs =
        line.indent > indent || (of_key && line.indent == indent && is_item(line.text));
    return belongs ? block(level + 1) : nlohmann::json(nullptr);
  }

  nlohmann::json scalar_or_flow(std::string_view text) {
    if (text.front() != '[' && text.front() != '{') return scalar(text);
    nlohmann::json value = flow(text, 0);
    if (!without_blanks(text).empty()) throw refusal("something follows the bracket");
    return value;
  }

  // Takes a value in brackets, or a scalar in one, from the front of `text`.
  nlohmann::json flow(std::string_view& text, int level) {
    if (level > kMostLevels) throw refusal("nested too deeply");
    text = text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty() || (text.front() != '[' && text.front() != '{')) {
      const std::size_t end = end_of_scalar(text, ",]}");
      const nlohmann::json value = scalar(without_blanks(text.substr(0, end)));
      text.remove_prefix(end);
      return value;
    }
    const bool is_map = text.front() == '{';
    const char closing = is_map ? '}' : ']';
    nlohmann::json values = is_map ? nlohmann::json::object() : nlohmann::json::array();
    text.remove_prefix(1);
    while (true) {
      text = text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
      if (text.empty()) throw refusal("a bracket is not closed on its line");
      if (text.front() == closing) break;
      if (is_map) {
        const std::size_t length = key_length(text);
        if (length == 0) throw refusal("a key without a value");
        const nlohmann::json key = scalar(without_blanks(text.substr(0, length - 1)));
        text.remove_prefix(length);
        values[key.get<std::string>()] = flow(text, level + 1);
      } else {
        values.push_back(flow(text, level + 1));
      }
      text = text.substr(std::min(text.find_first_not_of(kBlanks), text.size()));
      if (text.starts_with(',')) {
        text.remove_prefix(1);
      } else if (!text.starts_with(closing)) {
        throw refusal("a bracket is not closed on its line");
      }
    }
    text.remove_prefix(1);
    return values;
  }

  nlohmann::json scalar(std::string_view text) const {
    if (text.empty() || text == "~" || text == "null") return std::string();
    if (text.front() == '\'') {
      if (quoted_length(text) != text.size()) throw refusal("a quote does not end on its line");
      std::string plain;
      for (std::size_t i = 1; i + 1 < text.size(); ++i) {
        plain += text[i];
        if (text[i] == '\'') ++i;
      }
      return plain;
    }
    if (text.front() == '"') {
      auto value = read_json_or_discarded<nlohmann::json>(text);
      if (!value.is_string()) throw refusal("a quote that cannot be read");
      return value;
    }
    if (std::string_view("|>&*!%@`").find(text.front()) != std::string_view::npos) {
      throw refusal(fmt::format("\"{}\" is not understood", text.substr(0, 20)));
    }
    return std::string(text);
  }

  std::vector<Line> lines_;
  const std::string& where_;
  std::size_t at_ = 0;
};

}  // namespace

std::optional<nlohmann::json> front_matter_value(std::string_view page, std::string_view key,
                                                 const std::string& where) {
  page.remove_prefix(byte_order_mark(page));
  std::vector<Line> lines;
  std::optional<std::string_view> rest;  // behind the key, on its line
  for (std::size_t number = 1; !page.empty(); ++number) {
    const auto end = page.find('\n');
    const std::string_view whole = page.substr(0, end);
    page.remove_prefix(end == std::string_view::npos ? page.size() : end + 1);
    const std::string_view bare = without_blanks(whole);
    if (number == 1 && bare != "---") return {};
    if (number == 1) continue;
    if (bare == "---" || bare == "...") break;
    const std::string_view text = without_blanks(without_comment(whole));
    if (text.empty()) continue;
    const std::size_t indent = whole.find_first_not_of(' ');
    const bool at_top = indent == 0 && text != "-" && !text.starts_with("- ");
    if (at_top && rest) break;  // the next key
    if (rest) {
      lines.push_back({number, indent, text});
    } else if (at_top && text.starts_with(key) && text.substr(key.size()).starts_with(':')) {
      rest = without_blanks(text.substr(key.size() + 1));
      if (!rest->empty()) lines.push_back({number, 0, *rest});
    }
  }
  if (!rest) return {};
  return Reader(std::move(lines), where).value_of_all();
}

}  // namespace piton
