#include "text/jinja/values/printf.h"

#include <fmt/format.h>
#include <fmt/printf.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/values/operators.h"
#include "text/jinja/values/strings.h"
#include "text/jinja/values/value_text.h"

namespace piton::jinja {
namespace {

// One "%-08.2f".
struct Conversion {
  std::string name;  // of %(name)s
  bool has_name = false;
  std::string flags;
  std::int64_t width = 0;
  std::int64_t precision = -1;
  char type = 0;
};

constexpr std::int64_t kMostWidth = 100000;

class PercentFormat {
 public:
  PercentFormat(std::string_view text, const JinjaValue& values, Budget& budget)
      : text_(text), values_(values), budget_(budget) {}

  std::string run() {
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_++];
      if (c != '%') {
        out.push_back(c);
        continue;
      }
      const Conversion conversion = read();
      if (conversion.type == '%') {
        out.push_back('%');
      } else {
        out += converted(conversion, value_of(conversion));
      }
      budget_.step();
    }
    const bool is_tuple = values_.is(Kind::kTuple);
    const bool left = is_tuple ? next_ < values_.items().size() : next_ == 0 && !named_;
    // A dictionary or list that no conversion asks for is no error in Python.
    if (left && (is_tuple || !(values_.is(Kind::kDict) || values_.is(Kind::kList)))) {
      throw TemplateFailure("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  char peek() const {
    if (at_ == text_.size()) throw TemplateFailure("incomplete format");
    return text_[at_];
  }

  std::int64_t number() {
    std::int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error == std::errc{}) at_ = static_cast<std::size_t>(end - text_.data());
    if (value > kMostWidth) throw TemplateFailure("a width in a format is too large");
    return value;
  }

  Conversion read() {
    Conversion conversion;
    if (peek() == '(') {
      const std::size_t end = text_.find(')', at_);
      if (end == text_.npos) throw TemplateFailure("incomplete format key");
      conversion.name = text_.substr(at_ + 1, end - at_ - 1);
      conversion.has_name = true;
      at_ = end + 1;
    }
    while (std::string_view("-+ #0").find(peek()) != std::string_view::npos) {
      conversion.flags.push_back(text_[at_++]);
    }
    if (peek() == '*') throw TemplateFailure("\"*\" in a format is not supported");
    if (peek() >= '0' && peek() <= '9') conversion.width = number();
    if (peek() == '.') {
      ++at_;
      conversion.precision = peek() >= '0' && peek() <= '9' ? number() : 0;
    }
    conversion.type = peek();
    ++at_;
    return conversion;
  }

  JinjaValue value_of(const Conversion& conversion) {
    if (conversion.has_name) {
      named_ = true;
      if (!values_.is(Kind::kDict)) throw TemplateFailure("format requires a mapping");
      const JinjaValue* found = values_.dict().find(std::string_view(conversion.name));
      if (found == nullptr)
        throw TemplateFailure("no value for the format key '" + conversion.name + "'");
      return *found;
    }
    if (!values_.is(Kind::kTuple)) {
      if (next_++ > 0) throw TemplateFailure("not enough arguments for format string");
      return values_;
    }
    if (next_ == values_.items().size())
      throw TemplateFailure("not enough arguments for format string");
    return values_.items()[next_++];
  }

  std::string converted(const Conversion& conversion, const JinjaValue& value) {
    std::string text;
    switch (conversion.type) {
      case 's':
        text = to_text(value, budget_);
        break;
      case 'r':
        text = to_repr(value, budget_);
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return integer(conversion, value);
      case 'f':
      case 'F':
      case 'e':
      case 'E':
      case 'g':
      case 'G':
        return real(conversion, value);
      default:
        throw TemplateFailure(fmt::format("unsupported format character '{}'", conversion.type));
    }
    if (conversion.precision >= 0) {
      text.resize(byte_of(text, conversion.precision));
    }
    return padded(conversion, std::move(text));
  }

  std::string padded(const Conversion& conversion, std::string text) {
    budget_.use_bytes(text.size() + static_cast<std::size_t>(conversion.width));
    const std::int64_t missing = conversion.width - character_count(text);
    if (missing <= 0) return text;
    const std::string blanks(static_cast<std::size_t>(missing), ' ');
    return conversion.flags.find('-') != std::string::npos ? text + blanks : blanks + text;
  }

  // "%-+08.2" and the type, as C's printf has it.
  static std::string specification(const Conversion& conversion, std::string_view type) {
    std::string text = "%" + conversion.flags;
    if (conversion.width > 0) text += std::to_string(conversion.width);
    if (conversion.precision >= 0) text += "." + std::to_string(conversion.precision);
    return text.append(type);
  }

  std::string integer(const Conversion& conversion, const JinjaValue& value) {
    const bool hexadecimal =
        std::string_view("xXo").find(conversion.type) != std::string_view::npos;
    if (!value.is_number() || (hexadecimal && !value.is_integral())) {
      throw TemplateFailure(value.is_undefined()
                                ? value.str()
                                : fmt::format("%{} format: a number is required, not {}",
                                              conversion.type, type_name(value)));
    }
    const double real = std::trunc(value.as_real());
    if (!value.is_integral() && !(std::abs(real) < 9e18)) {
      throw TemplateFailure("a number in a format needs more than 64 bits");
    }
    const std::int64_t whole =
        value.is_integral() ? value.as_integer() : static_cast<std::int64_t>(real);
    if (hexadecimal && (whole < 0 || conversion.flags.find('#') != std::string::npos)) {
      throw TemplateFailure("this hexadecimal or octal format is not supported");
    }
    if (conversion.precision >= 0 && conversion.flags.find('0') != std::string::npos) {
      throw TemplateFailure("\"0\" and a precision in one integer format are not supported");
    }
    budget_.use_bytes(static_cast<std::size_t>(conversion.width));
    const char type = conversion.type == 'i' || conversion.type == 'u' ? 'd' : conversion.type;
    return fmt::sprintf(specification(conversion, std::string(1, type)),
                        static_cast<long long>(whole));
  }

  std::string real(const Conversion& conversion, const JinjaValue& value) {
    if (!value.is_number()) {
      throw TemplateFailure(value.is_undefined()
                                ? value.str()
                                : fmt::format("must be real number, not {}", type_name(value)));
    }
    budget_.use_bytes(static_cast<std::size_t>(conversion.width + conversion.precision + 400));
    return fmt::sprintf(specification(conversion, std::string(1, conversion.type)),
                        value.as_real());
  }

  std::string_view text_;
  const JinjaValue& values_;
  Budget& budget_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;
  bool named_ = false;
};

// The value of a field {0}, {name} or {}; `next` counts the fields without a name.
const JinjaValue& field_value(const std::string& field, const Arguments& arguments,
                              std::size_t& next) {
  const bool counted = field.empty();
  const bool digits = !counted && std::all_of(field.begin(), field.end(),
                                              [](char c) { return c >= '0' && c <= '9'; });
  if (counted || digits) {
    std::size_t index = next;
    if (digits) std::from_chars(field.data(), field.data() + field.size(), index);
    if (counted) ++next;
    if (index >= arguments.positional.size()) {
      throw TemplateFailure("format(): there are more fields than arguments");
    }
    return arguments.positional[index];
  }
  for (const auto& [name, value] : arguments.named) {
    if (name == field) return value;
  }
  throw TemplateFailure(fmt::format("format(): no argument '{}'", field));
}

}  // namespace

std::string formatted(std::string_view text, const JinjaValue& values, Budget& budget) {
  return PercentFormat(text, values, budget).run();
}

std::string formatted_fields(std::string_view text, const Arguments& arguments, Budget& budget) {
  std::string out;
  std::size_t next = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c != '{' && c != '}') {
      out.push_back(c);
      continue;
    }
    if (at + 1 < text.size() && text[at + 1] == c) {
      out.push_back(c);
      ++at;
      continue;
    }
    const std::size_t end = c == '{' ? text.find('}', at) : text.npos;
    if (end == text.npos) throw TemplateFailure("format(): a single '{' or '}' in the text");
    std::string field(text.substr(at + 1, end - at - 1));
    bool as_repr = false;
    if (field.ends_with("!r") || field.ends_with("!s")) {
      as_repr = field.back() == 'r';
      field.resize(field.size() - 2);
    }
    if (field.find_first_of(":!.[{") != field.npos) {
      throw TemplateFailure(fmt::format("format(): the field '{{{}}}' is not supported", field));
    }
    const JinjaValue& value = field_value(field, arguments, next);
    out += as_repr ? to_repr(value, budget) : to_text(value, budget);
    budget.use_bytes(out.size() < 64 ? out.size() : 64);
    at = end;
  }
  return out;
}

}  // namespace piton::jinja
