#include "text/jinja/value_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "text/jinja/filters.h"
#include "text/jinja/values/operators.h"
#include "text/jinja/values/strings.h"
#include "text/jinja/values/value_text.h"

namespace piton::jinja {
namespace {

// Tests that compare with their argument, and the operator.
constexpr auto kComparisons = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"==", "=="},
    {"eq", "=="},
    {"equalto", "=="},
    {"!=", "!="},
    {"ne", "!="},
    {">", ">"},
    {"gt", ">"},
    {"greaterthan", ">"},
    {"ge", ">="},
    {">=", ">="},
    {"<", "<"},
    {"lt", "<"},
    {"lessthan", "<"},
    {"<=", "<="},
    {"le", "<="},
    {"in", "in"},
});

std::string_view comparison(std::string_view name) {
  for (const auto& [known, operation] : kComparisons) {
    if (known == name) return operation;
  }
  return "";
}

// Tests of the type alone.
std::optional<bool> test_of_kind(std::string_view name, const JinjaValue& value) {
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "boolean") return value.is(Kind::kBool);
  if (name == "true") return value.is(Kind::kBool) && value.as_integer() != 0;
  if (name == "false") return value.is(Kind::kBool) && value.as_integer() == 0;
  if (name == "integer") return value.is(Kind::kInt);
  if (name == "float") return value.is(Kind::kFloat);
  if (name == "number") return value.is_number();
  if (name == "string") return value.is_text();
  if (name == "mapping") return value.is(Kind::kDict);
  if (name == "iterable") return is_iterable(value);
  // What has a length and can be subscripted; Jinja's undefined value counts.
  if (name == "sequence") return has_length(value) && !value.is_view();
  if (name == "callable") {
    return value.is(Kind::kFunction) || value.is_undefined() || value.is(Kind::kLoop);
  }
  if (name == "escaped") return value.is_markup();
  return std::nullopt;
}

bool remainder_is(const JinjaValue& value, const JinjaValue& divisor, std::int64_t wanted,
                  Budget& budget) {
  return equal(arithmetic("%", value, divisor, budget), JinjaValue::integer(wanted));
}

constexpr auto kOthers = std::to_array<std::string_view>(
    {"odd", "even", "divisibleby", "lower", "upper", "sameas", "filter", "test"});

}  // namespace

bool is_test(std::string_view name) {
  return !comparison(name).empty() || test_of_kind(name, JinjaValue()).has_value() ||
         std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
}

bool apply_test(Runtime& runtime, std::string_view name, const JinjaValue& value,
                Arguments arguments) {
  Budget& budget = runtime.budget();
  budget.step();
  if (const auto result = test_of_kind(name, value)) {
    const Parameters parameters(std::string(name), arguments, {});
    return *result;
  }
  if (const std::string_view operation = comparison(name); !operation.empty()) {
    const Parameters parameters(std::string(name), arguments, {"other"});
    return compare(operation, value, parameters.need(0));
  }
  if (name == "divisibleby" || name == "sameas") {
    const Parameters parameters(std::string(name), arguments, {name == "sameas" ? "other" : "num"});
    if (name == "sameas") return value.same_as(parameters.need(0));
    return remainder_is(value, parameters.need(0), 0, budget);
  }
  const Parameters parameters(std::string(name), arguments, {});
  if (name == "odd") return remainder_is(value, JinjaValue::integer(2), 1, budget);
  if (name == "even") return remainder_is(value, JinjaValue::integer(2), 0, budget);
  if (name == "lower") return *is_class("islower", to_text(value, budget));
  if (name == "upper") return *is_class("isupper", to_text(value, budget));
  if (name == "filter") return value.is_text() && is_filter(value.str());
  if (name == "test") return value.is_text() && is_test(value.str());
  throw TemplateFailure(fmt::format("no test named '{}'", name));
}

}  // namespace piton::jinja
