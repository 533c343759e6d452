#include "text/jinja/values/value_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/values/strings.h"
#include "text/unicode/utf8.h"

namespace piton::jinja {
namespace {

std::string quoted_text(std::string_view text) {
  const bool single = text.find('\'') == text.npos || text.find('"') != text.npos;
  const char quote = single ? '\'' : '"';
  std::string out(1, quote);
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (c.value == static_cast<char32_t>(quote) || c.value == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c.value));
    } else if (c.value == '\n') {
      out += "\\n";
    } else if (c.value == '\r') {
      out += "\\r";
    } else if (c.value == '\t') {
      out += "\\t";
    } else if (is_printable(c.value)) {
      out += text.substr(at, c.length);
    } else {
      const auto value = static_cast<std::uint32_t>(c.value);
      out += value < 0x100     ? fmt::format("\\x{:02x}", value)
             : value < 0x10000 ? fmt::format("\\u{:04x}", value)
                               : fmt::format("\\U{:08x}", value);
    }
    at += c.length;
  }
  out.push_back(quote);
  return out;
}

std::string joined(const Values& items, Budget& budget) {
  std::string out;
  for (const JinjaValue& item : items) {
    if (!out.empty()) out += ", ";
    out += to_repr(item, budget);
  }
  return out;
}

std::string dict_text(const JinjaValue& value, Budget& budget) {
  std::string out = "{";
  for (const auto& [key, item] : value.dict().entries()) {
    if (out.size() > 1) out += ", ";
    out += to_repr(key, budget) + ": " + to_repr(item, budget);
  }
  return out + "}";
}

// Writes one value as JSON.
class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Budget& budget) : style_(style), budget_(budget) {}

  void write(const JinjaValue& value) {
    budget_.step();
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return;
      case Kind::kBool:
        out_ += value.as_integer() != 0 ? "true" : "false";
        return;
      case Kind::kInt:
        out_ += std::to_string(value.as_integer());
        return;
      case Kind::kFloat:
        out_ += number(value.as_real());
        return;
      case Kind::kText:
        write_text(value.str());
        return;
      case Kind::kList:
      case Kind::kTuple:
        write_list(value.items());
        return;
      case Kind::kDict:
        write_dict(value.dict().entries());
        return;
      default:
        throw TemplateFailure(
            fmt::format("tojson: Object of type {} is not JSON serializable", type_name(value)));
    }
  }

  std::string take() {
    budget_.use_bytes(out_.size());
    return std::move(out_);
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return real_text(value);
  }

  void break_line() {
    if (!style_.indent) return;
    budget_.use_bytes(style_.indent->size() * static_cast<std::size_t>(level_));
    out_.push_back('\n');
    for (int i = 0; i < level_; ++i) out_ += *style_.indent;
  }

  void write_list(const Values& items) {
    if (items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    ++level_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      break_line();
      write(items[i]);
    }
    --level_;
    break_line();
    out_.push_back(']');
  }

  void write_dict(std::vector<Entry> entries) {
    if (entries.empty()) {
      out_ += "{}";
      return;
    }
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(),
                       [](const Entry& a, const Entry& b) { return less(a.first, b.first); });
    }
    out_.push_back('{');
    ++level_;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += style_.item_separator;
      break_line();
      write_text(key_text(entries[i].first));
      out_ += style_.key_separator;
      write(entries[i].second);
    }
    --level_;
    break_line();
    out_.push_back('}');
  }

  static std::string key_text(const JinjaValue& key) {
    switch (key.kind()) {
      case Kind::kText:
        return key.str();
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return key.as_integer() != 0 ? "true" : "false";
      case Kind::kInt:
        return std::to_string(key.as_integer());
      case Kind::kFloat:
        return number(key.as_real());
      default:
        throw TemplateFailure(fmt::format(
            "tojson: keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
  }

  void write_text(std::string_view text) {
    budget_.use_bytes(text.size());
    out_.push_back('"');
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      write_character(c.value, text.substr(at, c.length));
      at += c.length;
    }
    out_.push_back('"');
  }

  void write_character(char32_t c, std::string_view bytes) {
    switch (c) {
      case '"':
        out_ += "\\\"";
        return;
      case '\\':
        out_ += "\\\\";
        return;
      case '\n':
        out_ += "\\n";
        return;
      case '\r':
        out_ += "\\r";
        return;
      case '\t':
        out_ += "\\t";
        return;
      case '\f':
        out_ += "\\f";
        return;
      case '\b':
        out_ += "\\b";
        return;
      default:
        break;
    }
    const auto value = static_cast<std::uint32_t>(c);
    // With ensure_ascii DEL is escaped too.
    if (value >= 0x20 && (value < 0x7F || !style_.ensure_ascii)) {
      out_ += bytes;
    } else if (value < 0x10000) {
      out_ += fmt::format("\\u{:04x}", value);
    } else {
      out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((value - 0x10000) >> 10),
                          0xDC00 + ((value - 0x10000) & 0x3FF));
    }
  }

  const JsonStyle& style_;
  Budget& budget_;
  std::string out_;
  int level_ = 0;
};

}  // namespace

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = scientific.find('e');
  int exponent = 0;
  const char* digits_of_exponent = scientific.data() + e + 1;
  if (*digits_of_exponent == '+') ++digits_of_exponent;
  std::from_chars(digits_of_exponent, end.ptr, exponent);
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", scientific.substr(0, e), exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  char fixed[64];
  const auto fixed_end =
      std::to_chars(fixed, fixed + sizeof(fixed), value, std::chars_format::fixed);
  std::string text(fixed, fixed_end.ptr);
  if (text.find('.') == text.npos) text += ".0";
  return text;
}

std::string to_repr(const JinjaValue& value, Budget& budget) {
  budget.step();
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return value.as_integer() != 0 ? "True" : "False";
    case Kind::kInt:
      return std::to_string(value.as_integer());
    case Kind::kFloat:
      return real_text(value.as_real());
    case Kind::kText:
      budget.use_bytes(value.str().size());
      return value.is_markup() ? "Markup(" + quoted_text(value.str()) + ")"
                               : quoted_text(value.str());
    case Kind::kList:
      return "[" + joined(value.items(), budget) + "]";
    case Kind::kTuple:
      return "(" + joined(value.items(), budget) + (value.items().size() == 1 ? ",)" : ")");
    case Kind::kDict:
      return dict_text(value, budget);
    case Kind::kKeys:
    case Kind::kValues:
    case Kind::kItems:
      return type_name(value) + "([" + joined(iterate(value, budget), budget) + "])";
    case Kind::kRange: {
      const auto& range = value.as<Range>();
      return range.step == 1
                 ? fmt::format("range({}, {})", range.start, range.stop)
                 : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
    }
    default:
      throw TemplateFailure(fmt::format(
          "printing a value of type '{}' is not supported; print what is in it", type_name(value)));
  }
}

std::string to_text(const JinjaValue& value, Budget& budget) {
  if (value.is_undefined()) return "";
  if (value.is_text()) return value.str();
  return to_repr(value, budget);
}

std::string to_json(const JinjaValue& value, const JsonStyle& style, Budget& budget) {
  JsonWriter writer(style, budget);
  writer.write(value);
  return writer.take();
}

}  // namespace piton::jinja
