#include "text/jinja/values/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/html.h"
#include "text/jinja/values/methods.h"
#include "text/jinja/values/printf.h"
#include "text/jinja/values/strings.h"
#include "text/jinja/values/value_text.h"

namespace piton::jinja {
namespace {

[[noreturn]] void refuse_types(std::string_view name, const JinjaValue& a, const JinjaValue& b) {
  if (a.is_undefined()) throw TemplateFailure(a.str());
  if (b.is_undefined()) throw TemplateFailure(b.str());
  throw TemplateFailure(fmt::format("unsupported operand types for {}: '{}' and '{}'", name,
                                    type_name(a), type_name(b)));
}

JinjaValue checked(bool overflow, std::int64_t value) {
  if (overflow) throw TemplateFailure("an integer needs more than 64 bits, which is not supported");
  return JinjaValue::integer(value);
}

std::int64_t nonzero(std::int64_t divisor) {
  if (divisor == 0) throw TemplateFailure("integer division or modulo by zero");
  return divisor;
}

JinjaValue integer_power(std::int64_t base, std::int64_t exponent) {
  std::int64_t result = 1;
  bool overflow = false;
  if (base == 0 || base == 1) return JinjaValue::integer(exponent == 0 ? 1 : base);
  if (base == -1) return JinjaValue::integer(exponent % 2 == 0 ? 1 : -1);
  for (std::int64_t i = 0; i < exponent && !overflow; ++i) {
    overflow = __builtin_mul_overflow(result, base, &result);
  }
  return checked(overflow, result);
}

JinjaValue integer_arithmetic(std::string_view name, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  if (name == "+" || name == "-" || name == "*") {
    const bool overflow = name == "+"   ? __builtin_add_overflow(a, b, &result)
                          : name == "-" ? __builtin_sub_overflow(a, b, &result)
                                        : __builtin_mul_overflow(a, b, &result);
    return checked(overflow, result);
  }
  if (name == "**" && b >= 0) return integer_power(a, b);
  if (name == "/") {
    return JinjaValue::real(static_cast<double>(a) / static_cast<double>(nonzero(b)));
  }
  if (name == "**") {
    if (a == 0) throw TemplateFailure("0 cannot be raised to a negative power");
    return JinjaValue::real(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
  if (nonzero(b) == -1) {
    const bool overflow = __builtin_sub_overflow(0, a, &result);
    return name == "%" ? JinjaValue::integer(0) : checked(overflow, result);
  }
  const std::int64_t remainder = a % b;
  const bool other_sign = remainder != 0 && (remainder < 0) != (b < 0);
  if (name == "%") return JinjaValue::integer(other_sign ? remainder + b : remainder);
  return JinjaValue::integer(other_sign ? a / b - 1 : a / b);
}

JinjaValue real_arithmetic(std::string_view name, double a, double b) {
  if (name == "+") return JinjaValue::real(a + b);
  if (name == "-") return JinjaValue::real(a - b);
  if (name == "*") return JinjaValue::real(a * b);
  if (name == "**") {
    if (a == 0 && b < 0) throw TemplateFailure("0.0 cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b)) throw TemplateFailure("complex numbers are not supported");
    return JinjaValue::real(std::pow(a, b));
  }
  if (b == 0) throw TemplateFailure("float division by zero");
  if (name == "/") return JinjaValue::real(a / b);
  double remainder = std::fmod(a, b);
  if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
  if (name == "%") return JinjaValue::real(remainder);
  return JinjaValue::real(std::round((a - remainder) / b));
}

JinjaValue joined_texts(const JinjaValue& a, const JinjaValue& b, Budget& budget) {
  budget.use_bytes(a.str().size() + b.str().size());
  if (a.is_markup() == b.is_markup()) {
    std::string both = a.str() + b.str();
    return a.is_markup() ? JinjaValue::markup(std::move(both)) : JinjaValue::text(std::move(both));
  }
  return JinjaValue::markup((a.is_markup() ? a.str() : html_escaped(a.str())) +
                            (b.is_markup() ? b.str() : html_escaped(b.str())));
}

JinjaValue repeated(const JinjaValue& value, std::int64_t times, Budget& budget) {
  const auto count = static_cast<std::size_t>(std::max<std::int64_t>(times, 0));
  const std::size_t size =
      value.is_text() ? value.str().size() : value.items().size() * sizeof(JinjaValue);
  if (size > 0 && count > (std::size_t{1} << 40) / size) budget.use_bytes(std::size_t{1} << 40);
  budget.use_bytes(size * count);
  if (value.is_text()) {
    std::string text;
    text.reserve(size * count);
    for (std::size_t i = 0; size > 0 && i < count; ++i) text += value.str();
    return value.is_markup() ? JinjaValue::markup(std::move(text))
                             : JinjaValue::text(std::move(text));
  }
  Values items;
  for (std::size_t i = 0; size > 0 && i < count; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return value.is(Kind::kList) ? JinjaValue::list(std::move(items))
                               : JinjaValue::tuple(std::move(items));
}

}  // namespace

JinjaValue arithmetic(std::string_view name, const JinjaValue& a, const JinjaValue& b,
                      Budget& budget) {
  budget.step();
  if (a.is_integral() && b.is_integral()) {
    return integer_arithmetic(name, a.as_integer(), b.as_integer());
  }
  if (a.is_number() && b.is_number()) return real_arithmetic(name, a.as_real(), b.as_real());
  if (name == "%" && a.is_text()) return JinjaValue::text(formatted(a.str(), b, budget));
  if (name == "+" && a.is_text() && b.is_text()) return joined_texts(a, b, budget);
  if (name == "+" && a.is_sequence() && a.kind() == b.kind()) {
    budget.use_bytes((a.items().size() + b.items().size()) * sizeof(JinjaValue));
    Values items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return a.is(Kind::kList) ? JinjaValue::list(std::move(items))
                             : JinjaValue::tuple(std::move(items));
  }
  const auto repeats = [](const JinjaValue& value) {
    return value.is_text() || value.is_sequence();
  };
  if (name == "*" && repeats(a) && b.is_integral()) return repeated(a, b.as_integer(), budget);
  if (name == "*" && repeats(b) && a.is_integral()) return repeated(b, a.as_integer(), budget);
  refuse_types(name, a, b);
}

JinjaValue negated(const JinjaValue& value) {
  if (value.is_undefined()) throw TemplateFailure(value.str());
  if (value.is(Kind::kFloat)) return JinjaValue::real(-value.as_real());
  if (!value.is_integral()) {
    throw TemplateFailure(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
  }
  std::int64_t result = 0;
  const bool overflow = __builtin_sub_overflow(0, value.as_integer(), &result);
  return checked(overflow, result);
}

JinjaValue plus(const JinjaValue& value) {
  if (value.is_undefined()) throw TemplateFailure(value.str());
  if (value.is(Kind::kFloat)) return value;
  if (!value.is_integral()) {
    throw TemplateFailure(fmt::format("bad operand type for unary +: '{}'", type_name(value)));
  }
  return JinjaValue::integer(value.as_integer());
}

void check_key(const JinjaValue& key) {
  const bool hashable = !key.is(Kind::kList) && !key.is(Kind::kDict);
  if (!hashable) throw TemplateFailure(fmt::format("unhashable type: '{}'", type_name(key)));
  if (key.is(Kind::kTuple)) {
    for (const JinjaValue& item : key.items()) check_key(item);
  }
}

bool contains(const JinjaValue& container, const JinjaValue& item) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kText:
      if (!item.is_text()) {
        if (item.is_undefined()) {
          throw TemplateFailure("'in <string>' requires string as left operand, not Undefined (" +
                                item.str() + ")");
        }
        throw TemplateFailure(
            fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
      }
      return container.str().find(item.str()) != std::string::npos;
    case Kind::kList:
    case Kind::kTuple:
      return std::any_of(container.items().begin(), container.items().end(),
                         [&](const JinjaValue& other) { return equal(other, item); });
    case Kind::kDict:
    case Kind::kKeys:
      check_key(item);
      return container.dict().find(item) != nullptr;
    case Kind::kValues:
      return std::any_of(container.dict().entries().begin(), container.dict().entries().end(),
                         [&](const Entry& entry) { return equal(entry.second, item); });
    case Kind::kItems:
      return std::any_of(container.dict().entries().begin(), container.dict().entries().end(),
                         [&](const Entry& entry) {
                           return equal(JinjaValue::tuple({entry.first, entry.second}), item);
                         });
    case Kind::kRange: {
      const auto& range = container.as<Range>();
      if (!item.is_number() || item.as_real() != std::floor(item.as_real()) ||
          std::abs(item.as_real()) > 9e18) {
        return false;
      }
      const auto value = static_cast<std::int64_t>(item.as_real());
      return (range.step > 0 ? value >= range.start && value < range.stop
                             : value <= range.start && value > range.stop) &&
             (value - range.start) % range.step == 0;
    }
    case Kind::kIterator: {
      auto& iterator = container.as<Iterator>();
      while (iterator.next < iterator.items.size()) {
        if (equal(iterator.items[iterator.next++], item)) return true;
      }
      return false;
    }
    default:
      throw TemplateFailure(
          fmt::format("argument of type '{}' is not iterable", type_name(container)));
  }
}

bool compare(std::string_view name, const JinjaValue& a, const JinjaValue& b) {
  if (name == "==") return equal(a, b);
  if (name == "!=") return !equal(a, b);
  if (name == "in") return contains(b, a);
  if (name == "not in") return !contains(b, a);
  if (name == "<") return less(a, b);
  if (name == ">") return less(b, a);
  // Not the opposite of the other order: every order with NaN is false.
  if (name == "<=") return less(a, b) || equal(a, b);
  return less(b, a) || equal(a, b);
}

namespace {

std::optional<std::int64_t> index_in(std::int64_t index, std::int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return index;
}

// The item at a position, if the value has positions.
std::optional<JinjaValue> element_of(const JinjaValue& container, std::int64_t position) {
  const bool positions =
      container.is_text() || container.is_sequence() || container.is(Kind::kRange);
  if (!positions) return std::nullopt;
  const auto index = index_in(position, length(container));
  if (!index) return std::nullopt;
  if (container.is_sequence()) return container.items()[static_cast<std::size_t>(*index)];
  if (container.is(Kind::kRange)) {
    const auto& range = container.as<Range>();
    return JinjaValue::integer(range.start + *index * range.step);
  }
  const std::string& text = container.str();
  const std::size_t begin = byte_of(text, *index);
  const std::size_t end = begin + byte_of(std::string_view(text).substr(begin), 1);
  return JinjaValue::text(text.substr(begin, end - begin));
}

}  // namespace

JinjaValue item_of(Runtime& runtime, const JinjaValue& container, const JinjaValue& key) {
  runtime.budget().step();
  if (container.is_undefined()) throw TemplateFailure(container.str());
  if (container.is(Kind::kDict)) {
    const bool hashable = !key.is(Kind::kList) && !key.is(Kind::kDict);
    if (const JinjaValue* found = hashable ? container.dict().find(key) : nullptr) return *found;
  } else if (key.is_integral()) {
    if (auto found = element_of(container, key.as_integer())) return *found;
  }
  if (key.is_text()) {
    if (auto found = known_attribute(runtime, container, key.str())) return *found;
    return JinjaValue::undefined(
        fmt::format("'{}' has no attribute '{}'", described_type(container), key.str()));
  }
  return JinjaValue::undefined(fmt::format("{} has no element {}", described_type(container),
                                           to_repr(key, runtime.budget())));
}

JinjaValue attribute_of(Runtime& runtime, const JinjaValue& value, std::string_view name) {
  runtime.budget().step();
  if (value.is_undefined()) throw TemplateFailure(value.str());
  if (auto found = known_attribute(runtime, value, name)) return *found;
  if (value.is(Kind::kDict)) {
    if (const JinjaValue* found = value.dict().find(name)) return *found;
  }
  return JinjaValue::undefined(
      fmt::format("'{}' has no attribute '{}'", described_type(value), name));
}

JinjaValue slice_of(const JinjaValue& value, const SliceBounds& bounds, Budget& budget) {
  if (value.is_undefined()) throw TemplateFailure(value.str());
  if (!value.is_text() && !value.is_sequence() && !value.is(Kind::kRange)) {
    // Jinja looks up the slice as a key, and finds nothing.
    return JinjaValue::undefined(
        fmt::format("{} has no element slice(...)", described_type(value)));
  }
  const std::int64_t step = bounds.step.value_or(1);
  if (step == 0) throw TemplateFailure("slice step cannot be zero");
  const std::int64_t size = length(value);
  const auto clamped = [&](std::optional<std::int64_t> bound, std::int64_t fallback) {
    if (!bound) return fallback;
    const std::int64_t at = *bound < 0 ? *bound + size : *bound;
    return step > 0 ? std::clamp<std::int64_t>(at, 0, size)
                    : std::clamp<std::int64_t>(at, -1, size - 1);
  };
  const std::int64_t start = clamped(bounds.start, step > 0 ? 0 : size - 1);
  const std::int64_t stop = clamped(bounds.stop, step > 0 ? size : -1);
  if (value.is_text() && step == 1) {
    const std::string& text = value.str();
    if (stop <= start) return JinjaValue::text("");
    const std::size_t begin = byte_of(text, start);
    const std::size_t end = stop == size ? text.size() : byte_of(text, stop);
    budget.use_bytes(end - begin);
    return JinjaValue::text(text.substr(begin, end - begin));
  }
  Range picked;
  picked.start = start;
  picked.stop = stop;
  picked.step = step;
  const Values all = iterate(value, budget);
  Values items;
  for (std::int64_t i = 0; i < picked.size(); ++i) {
    items.push_back(all[static_cast<std::size_t>(start + i * step)]);
  }
  if (value.is(Kind::kTuple)) return JinjaValue::tuple(std::move(items));
  if (value.is(Kind::kList)) return JinjaValue::list(std::move(items));
  if (value.is(Kind::kRange))
    throw TemplateFailure("slices of a range are not supported; use a list");
  std::string text;
  for (const JinjaValue& item : items) text += item.str();
  return JinjaValue::text(std::move(text));
}

}  // namespace piton::jinja
