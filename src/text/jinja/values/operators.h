// Operators of expressions, with Python's rules.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/values/arguments.h"
#include "text/jinja/values/value.h"

namespace piton::jinja {

// + - * / // % ** by their spelling. Throws TemplateFailure for types that do not go together,
// division by zero, and integers of more than 64 bits (which Python has and Piton has not).
JinjaValue arithmetic(std::string_view name, const JinjaValue& a, const JinjaValue& b,
                      Budget& budget);
JinjaValue negated(const JinjaValue& value);
JinjaValue plus(const JinjaValue& value);

// == != < <= > >= in, "not in".
bool compare(std::string_view name, const JinjaValue& a, const JinjaValue& b);
bool contains(const JinjaValue& container, const JinjaValue& item);

// container[key] and then, for texts, container.key; undefined if there is neither.
JinjaValue item_of(Runtime& runtime, const JinjaValue& container, const JinjaValue& key);
// value.name, and then value["name"]; undefined if there is neither.
JinjaValue attribute_of(Runtime& runtime, const JinjaValue& value, std::string_view name);

struct SliceBounds {
  std::optional<std::int64_t> start, stop, step;
};
// Texts, lists, tuples and ranges.
JinjaValue slice_of(const JinjaValue& value, const SliceBounds& bounds, Budget& budget);

// Throws TemplateFailure if the value cannot be a key: lists and dictionaries.
void check_key(const JinjaValue& key);

}  // namespace piton::jinja
