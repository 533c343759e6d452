// The types an option may have: how each is read from words and written as TOML.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>

#include "base/error.h"
#include "base/options/byte_size.h"
#include "base/options/options.h"

namespace piton {
namespace {

std::string join(const std::vector<std::string>& words, std::string_view separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

[[noreturn]] void refuse(const Option& option, std::string_view got, std::string_view wanted) {
  throw Error(Fault::kUsage, "--{}: got \"{}\", wanted {}", option.name, got, wanted);
}

template <typename T>
constexpr std::string_view kTypeName = "text";
template <>
constexpr std::string_view kTypeName<int> = "integer";
template <>
constexpr std::string_view kTypeName<std::int64_t> = "integer";
template <>
constexpr std::string_view kTypeName<std::uint64_t> = "non-negative integer";
template <>
constexpr std::string_view kTypeName<double> = "number";

// TOML files are UTF-8, so other text, which could not be stored, is refused at once.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80           ? 1
                               : (lead >> 5) == 0x06 ? 2
                               : (lead >> 4) == 0x0E ? 3
                               : (lead >> 3) == 0x1E ? 4
                                                     : 0;
    if (length == 0 || i + length > text.size()) return false;
    std::uint32_t code = length == 1 ? lead : lead & (0x7FU >> length);
    for (std::size_t k = 1; k < length; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next >> 6) != 0x02) return false;
      code = code << 6 | (next & 0x3FU);
    }
    constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[length] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
    i += length;
  }
  return true;
}

// Removes "_" between two digits: 1_000 is 1000.
std::string plain_digits(const std::string& word) {
  const auto digit = [&](std::size_t i) {
    return i < word.size() && word[i] >= '0' && word[i] <= '9';
  };
  std::string digits;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    digits += word[i];
  }
  return digits;
}

// "1e3", "4k", "1.5M", "4Ki". False for any other text, or for a fraction if T is an integer.
template <typename T>
bool read_scaled(const std::string& digits, T& value, bool& out_of_range) {
  double number = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, code] = std::from_chars(digits.data(), end, number);
  out_of_range = code == std::errc::result_out_of_range;
  if (code != std::errc()) return false;
  const std::optional<double> scale =
      scale_of(std::string_view(stop, static_cast<std::size_t>(end - stop)));
  if (!scale) return false;
  number *= *scale;
  if constexpr (std::is_integral_v<T>) {
    if (number != std::floor(number)) return false;
    if (std::is_unsigned_v<T> && number < 0) return false;
    // A double represents every whole number up to 2^53.
    constexpr double kExact = 9007199254740992.0;
    out_of_range = std::abs(number) > kExact ||
                   number < static_cast<double>(std::numeric_limits<T>::min()) ||
                   number > static_cast<double>(std::numeric_limits<T>::max());
    if (out_of_range) return false;
  }
  value = static_cast<T>(number);
  return true;
}

template <typename T>
T read_value(const Option& option, const std::string& word) {
  if constexpr (std::is_same_v<T, std::string>) {
    const std::vector<std::string>& choices = option.rules.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), word) == choices.end()) {
      const std::string near = nearest_name(word, choices);
      refuse(option, word,
             fmt::format("one of {}{}", join(choices, ", "),
                         near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near)));
    }
    if (!is_utf8(word)) refuse(option, word, "text in UTF-8");
    return word;
  } else {
    T value{};
    std::string digits = plain_digits(word);
    const bool bytes = option.rules.placeholder == "BYTES";  // also 5GB, 5GiB
    if (bytes && digits.ends_with('B')) digits.pop_back();
    const char* end = digits.data() + digits.size();
    const auto [stop, code] = std::from_chars(digits.data(), end, value);
    bool out_of_range = code == std::errc::result_out_of_range;
    bool read = code == std::errc() && stop == end;
    if (!read && !out_of_range) read = read_scaled(digits, value, out_of_range);
    if (out_of_range) {
      if constexpr (std::is_integral_v<T>) {
        refuse(option, word,
               fmt::format("{} from {} to {}", kTypeName<T>, std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::max()));
      } else {
        refuse(option, word, "a number that a double can hold");
      }
    }
    if (!read) refuse(option, word, bytes ? "bytes, such as 5000000000 or 5GB" : kTypeName<T>);
    if constexpr (std::is_floating_point_v<T>) {
      if (std::isnan(value)) refuse(option, word, kTypeName<T>);
    }
    return value;
  }
}

std::string toml_of(const std::string& text) {
  std::string literal = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        literal += "\\\"";
        break;
      case '\\':
        literal += "\\\\";
        break;
      case '\n':
        literal += "\\n";
        break;
      case '\t':
        literal += "\\t";
        break;
      case '\r':
        literal += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          literal += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
        } else {
          literal += c;
        }
    }
  }
  return literal + '"';
}
std::string toml_of(std::int64_t value) { return fmt::format("{}", value); }
std::string toml_of(int value) { return fmt::format("{}", value); }
std::string toml_of(std::uint64_t value) {
  // A TOML integer has 63 bits; larger ones are written as text, which read_toml accepts for this
  // type.
  const bool fits = value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return fmt::format(fmt::runtime(fits ? "{}" : "\"{}\""), value);
}
// The shortest digits that read back as the same number; a point or exponent makes it a float.
std::string toml_of(double value) {
  std::string literal = fmt::format("{}", value);
  if (literal.find_first_of(".en") == std::string::npos) literal += ".0";
  return literal;
}

// The name of type T in the help.
template <typename T>
std::string type_of(const Option& option) {
  if (!option.rules.choices.empty()) return "one of " + join(option.rules.choices, "|");
  return std::string(kTypeName<T>);
}

const std::string& only_word(const Option& option, const std::vector<std::string>& words) {
  if (words.size() != 1) refuse(option, join(words, " "), "one value");
  return words.front();
}

template <typename T>
BoundOption bind_scalar(Option option, T& value) {
  BoundOption bound;
  bound.option = option;
  bound.set = [option, &value](const std::vector<std::string>& words) {
    value = read_value<T>(option, only_word(option, words));
  };
  bound.toml = [&value] { return toml_of(value); };
  bound.type = [option] { return type_of<T>(option); };
  return bound;
}

template <typename T>
BoundOption bind_optional(Option option, std::optional<T>& value) {
  BoundOption bound;
  bound.option = option;
  bound.set = [option, &value](const std::vector<std::string>& words) {
    value = read_value<T>(option, only_word(option, words));
  };
  bound.toml = [&value] { return value ? toml_of(*value) : std::string(); };
  bound.type = [option] { return type_of<T>(option); };
  return bound;
}

template <typename T>
BoundOption bind_list(Option option, std::vector<T>& values) {
  BoundOption bound;
  bound.option = option;
  bound.is_list = true;
  bound.set = [option, &values](const std::vector<std::string>& words) {
    std::vector<T> read;
    for (const std::string& word : words) {
      if constexpr (std::is_same_v<T, std::string>) {
        read.push_back(read_value<T>(option, word));
      } else {
        // Numbers may also be joined by commas: --prompt-ids 1,2,3.
        for (std::size_t begin = 0; begin <= word.size();) {
          const std::size_t end = std::min(word.find(',', begin), word.size());
          read.push_back(read_value<T>(option, word.substr(begin, end - begin)));
          begin = end + 1;
        }
      }
    }
    values = std::move(read);
  };
  bound.toml = [&values] {
    std::vector<std::string> literals;
    for (const T& value : values) literals.push_back(toml_of(value));
    return fmt::format("[{}]", join(literals, ", "));
  };
  bound.type = [option] { return "list of " + type_of<T>(option); };
  return bound;
}

// T: bool, or std::optional<bool>.
template <typename T>
BoundOption bind_flag(Option option, T& value) {
  BoundOption bound;
  bound.option = option;
  bound.is_flag = true;
  bound.set = [option, &value](const std::vector<std::string>& words) {
    const std::string& word = only_word(option, words);
    if (word != "true" && word != "false") refuse(option, word, "true or false");
    value = word == "true";
  };
  bound.toml = [&value]() -> std::string {
    if (value == T{true}) return "true";
    return value == T{false} ? "false" : "";
  };
  bound.type = [] { return std::string("true or false"); };
  return bound;
}

}  // namespace

BoundOption bind_option(Option option, bool& value) { return bind_flag(std::move(option), value); }
BoundOption bind_option(Option option, std::optional<bool>& value) {
  return bind_flag(std::move(option), value);
}

BoundOption bind_option(Option option, int& value) { return bind_scalar(std::move(option), value); }
BoundOption bind_option(Option option, std::int64_t& value) {
  return bind_scalar(std::move(option), value);
}
BoundOption bind_option(Option option, std::uint64_t& value) {
  return bind_scalar(std::move(option), value);
}
BoundOption bind_option(Option option, double& value) {
  return bind_scalar(std::move(option), value);
}
BoundOption bind_option(Option option, std::string& value) {
  const std::vector<std::string>& choices = option.rules.choices;
  const bool empty_is_unset =
      !choices.empty() && std::find(choices.begin(), choices.end(), "") == choices.end();
  BoundOption bound = bind_scalar(std::move(option), value);
  if (empty_is_unset) {
    // Unset: the stored configuration omits it, because reading would refuse "".
    bound.toml = [toml = std::move(bound.toml), &value] {
      return value.empty() ? std::string() : toml();
    };
  }
  return bound;
}
BoundOption bind_option(Option option, std::vector<std::string>& value) {
  return bind_list(std::move(option), value);
}
BoundOption bind_option(Option option, std::vector<int>& value) {
  return bind_list(std::move(option), value);
}
BoundOption bind_option(Option option, std::vector<std::int64_t>& value) {
  return bind_list(std::move(option), value);
}
BoundOption bind_option(Option option, std::vector<double>& value) {
  return bind_list(std::move(option), value);
}
BoundOption bind_option(Option option, std::optional<std::int64_t>& value) {
  return bind_optional(std::move(option), value);
}
BoundOption bind_option(Option option, std::optional<double>& value) {
  return bind_optional(std::move(option), value);
}
BoundOption bind_option(Option option, std::optional<std::string>& value) {
  return bind_optional(std::move(option), value);
}

BoundOption bind_choice(Option option, std::vector<std::string> names, std::function<int()> get,
                        std::function<void(int)> set) {
  PITON_ASSERT(!names.empty(), "--{} has no choices", option.name);
  option.rules.choices = names;
  BoundOption bound;
  bound.option = option;
  bound.set = [option, names, set](const std::vector<std::string>& words) {
    const std::string word = read_value<std::string>(option, only_word(option, words));
    set(static_cast<int>(std::find(names.begin(), names.end(), word) - names.begin()));
  };
  bound.toml = [option, names, get] {
    const int index = get();
    PITON_ASSERT(index >= 0 && index < static_cast<int>(names.size()),
                 "--{} holds a value without a name", option.name);
    return toml_of(names[static_cast<std::size_t>(index)]);
  };
  bound.type = [option] { return type_of<std::string>(option); };
  return bound;
}

}  // namespace piton
