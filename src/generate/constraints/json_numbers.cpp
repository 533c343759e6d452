#include "generate/constraints/json_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace piton {
namespace {

using Part = GrammarBuilder::Part;

constexpr std::int64_t kLargestInteger = 999'999'999'999'999'999;

Part digits(GrammarBuilder& grammar, char first, char last) {
  return grammar.bytes(static_cast<std::uint8_t>(first), static_cast<std::uint8_t>(last));
}

Part any_digits(GrammarBuilder& grammar, std::size_t least, std::size_t most) {
  return grammar.repeat(digits(grammar, '0', '9'), static_cast<std::int64_t>(least),
                        static_cast<std::int64_t>(most));
}

// Digits from `low` to `high`, all of one length.
Part digits_between(GrammarBuilder& grammar, const std::string& low, const std::string& high) {
  if (low.empty()) return grammar.sequence({});
  const std::size_t rest = low.size() - 1;
  const std::string zeros(rest, '0');
  const std::string nines(rest, '9');
  if (low[0] == high[0]) {
    return grammar.sequence(
        {digits(grammar, low[0], low[0]), digits_between(grammar, low.substr(1), high.substr(1))});
  }
  std::vector<Part> parts;
  char first = low[0];
  char last = high[0];
  if (low.substr(1) != zeros) {
    parts.push_back(grammar.sequence(
        {digits(grammar, first, first), digits_between(grammar, low.substr(1), nines)}));
    ++first;
  }
  if (high.substr(1) != nines) {
    parts.push_back(grammar.sequence(
        {digits(grammar, last, last), digits_between(grammar, zeros, high.substr(1))}));
    --last;
  }
  if (first <= last) {
    parts.push_back(
        grammar.sequence({digits(grammar, first, last), any_digits(grammar, rest, rest)}));
  }
  return grammar.choice(std::move(parts));
}

// Whole numbers from `low` to `high`, both at least 0.
Part natural_between(GrammarBuilder& grammar, std::int64_t low, std::int64_t high) {
  std::vector<Part> parts;
  std::int64_t smallest = 0;  // of the numbers with so many digits
  std::int64_t largest = 9;
  while (low <= high && smallest <= high) {
    const std::int64_t from = std::max(low, smallest);
    const std::int64_t to = std::min(high, largest);
    if (from <= to)
      parts.push_back(digits_between(grammar, std::to_string(from), std::to_string(to)));
    if (largest >= kLargestInteger) break;
    smallest = largest + 1;
    largest = largest * 10 + 9;
  }
  return grammar.choice(std::move(parts));
}

struct Decimal {
  std::int64_t whole = 0;
  std::string fraction;  // digits after the point, without zeros at the end
};

// Of a number that is at least 0, as its shortest text has it.
Decimal decimal_of(double value, std::string_view where) {
  std::string text;
  // Shortest digits that read back the same.
  for (int precision = 0; precision < 17; ++precision) {
    text = fmt::format("{:.{}e}", value, precision);
    if (std::strtod(text.c_str(), nullptr) == value) break;
  }
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  std::string figures = text.substr(0, e);
  std::erase(figures, '.');
  int point = exponent + 1;  // figures before the point
  if (point > 15 || static_cast<int>(figures.size()) - point > 30)
    throw Error(Fault::kUsage, "{}: limit {} has too many digits", where, value);
  if (point < 1) {
    figures.insert(0, static_cast<std::size_t>(1 - point), '0');
    point = 1;
  }
  if (static_cast<int>(figures.size()) < point)
    figures.resize(static_cast<std::size_t>(point), '0');
  Decimal decimal{std::atoll(figures.substr(0, static_cast<std::size_t>(point)).c_str()),
                  figures.substr(static_cast<std::size_t>(point))};
  while (decimal.fraction.ends_with('0')) decimal.fraction.pop_back();
  return decimal;
}

struct FractionLimit {
  std::string digits;
  bool exclusive = false;
};

// Digits after a point, at most `longest`, between two limits.
class Fractions {
 public:
  Fractions(GrammarBuilder& grammar, std::optional<FractionLimit> low,
            std::optional<FractionLimit> high, std::size_t longest)
      : grammar_(grammar), low_(std::move(low)), high_(std::move(high)), longest_(longest) {}

  // With the point, or nothing at all.
  Part part() {
    std::vector<Part> parts;
    const bool low = low_.has_value();
    const bool high = high_.has_value();
    if (may_stop(0, low, high)) parts.push_back(grammar_.sequence({}));
    parts.push_back(grammar_.sequence({digits(grammar_, '.', '.'), next_digit(0, low, high)}));
    return grammar_.choice(std::move(parts));
  }

 private:
  static bool only_zeros_from(const FractionLimit& limit, std::size_t at) {
    return limit.digits.size() <= at;
  }
  static char digit(const FractionLimit& limit, std::size_t at) {
    return at < limit.digits.size() ? limit.digits[at] : '0';
  }

  // `low`, `high`: the digits before `at` are those of the limit.
  bool may_stop(std::size_t at, bool low, bool high) const {
    if (low && (!only_zeros_from(*low_, at) || low_->exclusive)) return false;
    return !high || !only_zeros_from(*high_, at) || !high_->exclusive;
  }

  Part rest(std::size_t at, bool low, bool high) {
    if (!low && !high) return any_digits(grammar_, 0, longest_ - at);
    std::vector<Part> parts;
    if (may_stop(at, low, high)) parts.push_back(grammar_.sequence({}));
    if (at < longest_) parts.push_back(next_digit(at, low, high));
    return grammar_.choice(std::move(parts));
  }

  Part next_digit(std::size_t at, bool low, bool high) {
    std::vector<Part> parts;
    const char first = low ? digit(*low_, at) : '0';
    const char last = high ? digit(*high_, at) : '9';
    for (char c = first; c <= last; ++c) {
      const bool still_low = low && c == first;
      const bool still_high = high && c == last;
      parts.push_back(
          grammar_.sequence({digits(grammar_, c, c), rest(at + 1, still_low, still_high)}));
    }
    return grammar_.choice(std::move(parts));
  }

  GrammarBuilder& grammar_;
  std::optional<FractionLimit> low_;
  std::optional<FractionLimit> high_;
  std::size_t longest_;
};

// Numbers from `low` to `high`; neither is below 0.
Part magnitudes(GrammarBuilder& grammar, const NumberLimit& low,
                const std::optional<NumberLimit>& high, std::string_view where) {
  const Decimal from = decimal_of(low.value, where);
  const FractionLimit after{from.fraction, low.exclusive};
  std::size_t longest = from.fraction.size() + 2;
  if (!high) {
    return grammar.choice(
        {grammar.sequence({natural_between(grammar, from.whole, from.whole),
                           Fractions(grammar, after, std::nullopt, longest).part()}),
         grammar.sequence({natural_between(grammar, from.whole + 1, 999'999'999'999),
                           Fractions(grammar, std::nullopt, std::nullopt, longest).part()})});
  }
  const Decimal to = decimal_of(high->value, where);
  const FractionLimit before{to.fraction, high->exclusive};
  longest = std::max(longest, to.fraction.size() + 2);
  if (low.value > high->value) return grammar.choice({});
  if (from.whole == to.whole) {
    return grammar.sequence({natural_between(grammar, from.whole, from.whole),
                             Fractions(grammar, after, before, longest).part()});
  }
  return grammar.choice(
      {grammar.sequence({natural_between(grammar, from.whole, from.whole),
                         Fractions(grammar, after, std::nullopt, longest).part()}),
       grammar.sequence({natural_between(grammar, from.whole + 1, to.whole - 1),
                         Fractions(grammar, std::nullopt, std::nullopt, longest).part()}),
       grammar.sequence({natural_between(grammar, to.whole, to.whole),
                         Fractions(grammar, std::nullopt, before, longest).part()})});
}

}  // namespace

Part json_integer(GrammarBuilder& grammar, const NumberLimits& limits) {
  const auto within = [](double value) {
    constexpr double kLargest = 999'999'999'999'999'872.0;  // a double below 10^18
    return static_cast<std::int64_t>(std::clamp(value, -kLargest, kLargest));
  };
  std::int64_t low = -kLargestInteger;
  std::int64_t high = kLargestInteger;
  if (limits.least) {
    const double value = std::ceil(limits.least->value);
    low = within(value) + (limits.least->exclusive && value == limits.least->value ? 1 : 0);
  }
  if (limits.most) {
    const double value = std::floor(limits.most->value);
    high = within(value) - (limits.most->exclusive && value == limits.most->value ? 1 : 0);
  }
  std::vector<Part> parts = {natural_between(grammar, std::max<std::int64_t>(low, 0), high)};
  if (low < 0) {
    parts.push_back(
        grammar.sequence({digits(grammar, '-', '-'),
                          natural_between(grammar, std::max<std::int64_t>(-high, 1), -low)}));
  }
  return grammar.choice(std::move(parts));
}

Part json_number(GrammarBuilder& grammar, const NumberLimits& limits, std::string_view where) {
  if (!limits.least && !limits.most) {
    const auto byte = [&](char c) { return digits(grammar, c, c); };
    const Part whole = grammar.choice(
        {byte('0'), grammar.sequence({digits(grammar, '1', '9'), any_digits(grammar, 0, 15)})});
    const Part fraction = grammar.sequence({byte('.'), any_digits(grammar, 1, 16)});
    const Part exponent = grammar.sequence(
        {grammar.choice({byte('e'), byte('E')}),
         grammar.optional(grammar.choice({byte('-'), byte('+')})), any_digits(grammar, 1, 2)});
    return grammar.sequence({grammar.optional(byte('-')), whole, grammar.optional(fraction),
                             grammar.optional(exponent)});
  }
  const NumberLimit zero;
  const auto mirrored = [](const NumberLimit& limit) {
    return NumberLimit{-limit.value, limit.exclusive};
  };
  std::vector<Part> parts;
  if (!limits.most || limits.most->value >= 0) {
    const bool above = limits.least && limits.least->value >= 0;
    parts.push_back(magnitudes(grammar, above ? *limits.least : zero, limits.most, where));
  }
  if (!limits.least || limits.least->value < 0) {
    const bool below = limits.most && limits.most->value <= 0;
    std::optional<NumberLimit> farthest;
    if (limits.least) farthest = mirrored(*limits.least);
    parts.push_back(grammar.sequence(
        {digits(grammar, '-', '-'),
         magnitudes(grammar, below ? mirrored(*limits.most) : zero, farthest, where)}));
  }
  return grammar.choice(std::move(parts));
}

}  // namespace piton
