// Filters that make numbers of values.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "text/jinja/filters.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/strings.h"

namespace piton::jinja {
namespace {

// `text` without the "_" between digits; nullopt if one is elsewhere.
std::optional<std::string> plain_digits(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out.push_back(text[i]);
      continue;
    }
    const auto is_digit = [&](std::size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return out;
}

// int(text, base) of Python; nullopt where it raises ValueError.
std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t base) {
  text = strip(text, Side::kBoth);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefixed = [&](char small, std::int64_t its_base) {
    if (text.size() < 3 || text[0] != '0' || (text[1] | 0x20) != small) return false;
    if (base != its_base && base != 0) return false;
    base = its_base;
    text.remove_prefix(text[2] == '_' ? 3 : 2);
    return true;
  };
  const bool has_prefix = prefixed('x', 16) || prefixed('o', 8) || prefixed('b', 2);
  if (base == 0 && !has_prefix) base = 10;
  if (base < 2 || base > 36) throw TemplateFailure("int: the base must be 0 or 2 to 36");
  const auto digits = plain_digits(text);
  if (!digits || digits->empty() || (*digits)[0] == '-' || (*digits)[0] == '+') return std::nullopt;
  const std::string signed_digits = (negative ? "-" : "") + *digits;
  std::int64_t value = 0;
  const char* const end = signed_digits.data() + signed_digits.size();
  const auto [stop, error] =
      std::from_chars(signed_digits.data(), end, value, static_cast<int>(base));
  if (stop != end) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    throw TemplateFailure("int: the number needs more than 64 bits, which is not supported");
  }
  return value;
}

// float(text) of Python.
std::optional<double> parse_real(std::string_view text) {
  text = strip(text, Side::kBoth);
  const auto digits = plain_digits(text);
  if (!digits || digits->empty()) return std::nullopt;
  std::string_view number = *digits;
  const bool negative = number.starts_with('-');
  if (negative || number.starts_with('+')) number.remove_prefix(1);
  // from_chars also takes "nan(...)", and a second sign.
  if (number.empty() || number[0] == '-' || number.find('(') != number.npos) return std::nullopt;
  double value = 0;
  const auto [stop, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (stop != number.data() + number.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    value = std::strtod(std::string(number).c_str(), nullptr);
  return negative ? -value : value;
}

// int(float): nullopt for what is not finite.
std::optional<std::int64_t> truncated(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 9.2e18) {
    throw TemplateFailure("int: the number needs more than 64 bits, which is not supported");
  }
  return static_cast<std::int64_t>(value);
}

JinjaValue to_integer(const FilterCall& call) {
  const Parameters parameters("int", call.arguments, {"default", "base"});
  const JinjaValue fallback = parameters.has(0) ? parameters.get(0) : JinjaValue::integer(0);
  const JinjaValue& value = call.value;
  if (value.is_undefined()) throw TemplateFailure(value.str());
  std::optional<std::int64_t> result;
  if (value.is_text()) {
    result = parse_integer(value.str(), parameters.integer_or(1, 10));
    if (!result) {
      const auto real = parse_real(value.str());
      if (real) result = truncated(*real);
    }
  } else if (value.is_integral()) {
    result = value.as_integer();
  } else if (value.is(Kind::kFloat)) {
    result = truncated(value.as_real());
  }
  return result ? JinjaValue::integer(*result) : fallback;
}

JinjaValue to_real(const FilterCall& call) {
  const Parameters parameters("float", call.arguments, {"default"});
  const JinjaValue& value = call.value;
  if (value.is_undefined()) throw TemplateFailure(value.str());
  std::optional<double> result;
  if (value.is_text()) result = parse_real(value.str());
  if (value.is_number()) result = value.as_real();
  if (result) return JinjaValue::real(*result);
  return parameters.has(0) ? parameters.get(0) : JinjaValue::real(0);
}

const JinjaValue& need_number(const FilterCall& call) {
  if (call.value.is_undefined()) throw TemplateFailure(call.value.str());
  if (!call.value.is_number()) {
    throw TemplateFailure(
        fmt::format("{}: got a {}, wanted a number", call.name, type_name(call.value)));
  }
  return call.value;
}

JinjaValue absolute(const FilterCall& call) {
  const Parameters parameters("abs", call.arguments, {});
  const JinjaValue& value = need_number(call);
  if (value.is(Kind::kFloat)) return JinjaValue::real(std::abs(value.as_real()));
  return value.as_integer() < 0 ? negated(value) : plus(value);
}

JinjaValue round_filter(const FilterCall& call) {
  const Parameters parameters("round", call.arguments, {"precision", "method"});
  const std::int64_t precision = parameters.integer_or(0, 0);
  const std::string method = parameters.has(1) ? parameters.need_text(1) : "common";
  const JinjaValue& value = need_number(call);
  if (precision < 0 || precision > 300) {
    throw TemplateFailure("round: got a precision outside 0 to 300, which is not supported");
  }
  if (method == "common") {
    if (value.is_integral()) return plus(value);
    if (!std::isfinite(value.as_real())) return value;
    // printf rounds the exact binary value, halves to even, as Python does.
    const std::string digits = fmt::format("{:.{}f}", value.as_real(), precision);
    return JinjaValue::real(std::strtod(digits.c_str(), nullptr));
  }
  if (method != "ceil" && method != "floor") {
    throw TemplateFailure("round: the method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_real() * scale;
  return JinjaValue::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

JinjaValue count(const FilterCall& call) {
  const Parameters parameters(std::string(call.name), call.arguments, {});
  return JinjaValue::integer(length(call.value));
}

constexpr auto kNumberFilters = std::to_array<std::pair<std::string_view, Filter>>({
    {"int", to_integer},
    {"float", to_real},
    {"abs", absolute},
    {"round", round_filter},
    {"length", count},
    {"count", count},
});

}  // namespace

Filter number_filter(std::string_view name) {
  for (const auto& [known, filter] : kNumberFilters) {
    if (known == name) return filter;
  }
  return nullptr;
}

}  // namespace piton::jinja
