// Reads arguments of a Megatron run by their names and kinds.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "pickle/pickle_value.h"

namespace piton {

// Arguments by name; None counts as absent. All throw Error(kData) with `where`, the name and the
// value of an argument of another kind.
class ArgumentValues {
 public:
  using Kind = PickleValue::Kind;
  ArgumentValues(const PickleValue& values, const std::string& where)
      : values_(values), where_(where) {}

  const PickleValue* find(const char* name) const {
    const PickleValue* value = values_.find(name);
    return value == nullptr || value->kind == Kind::kNone ? nullptr : value;
  }
  // Of two names of an argument, that which is given; else the first.
  const char* either(const char* name, const char* other) const {
    return find(name) == nullptr && find(other) != nullptr ? other : name;
  }
  std::optional<std::int64_t> size(const char* name) const {
    const PickleValue* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (value->kind != Kind::kInt || value->integer < 1 || value->integer > INT32_MAX)
      wrong(name, "a positive integer below 2^31");
    return value->integer;
  }
  std::int64_t must(const char* name) const {
    const std::optional<std::int64_t> value = size(name);
    if (!value) wrong(name, "a positive integer below 2^31");
    return *value;
  }
  double number(const char* name, double otherwise) const {
    const PickleValue* value = sole(find(name));
    if (value == nullptr) return otherwise;
    if (value->kind == Kind::kInt) return static_cast<double>(value->integer);
    if (value->kind != Kind::kFloat || !std::isfinite(value->number)) wrong(name, "a number");
    return value->number;
  }
  bool flag(const char* name, bool otherwise) const {
    const PickleValue* value = find(name);
    if (value == nullptr) return otherwise;
    if (value->kind != Kind::kBool) wrong(name, "true or false");
    return value->truth;
  }
  std::string word(const char* name, const std::string& otherwise) const {
    const PickleValue* value = sole(find(name));
    if (value == nullptr) return otherwise;
    if (value->kind != Kind::kText) wrong(name, "a word");
    return value->text;
  }
  // "0,3", or a list or set of numbers.
  std::vector<std::int64_t> numbers(const char* name) const {
    const PickleValue* value = find(name);
    if (value == nullptr) return {};
    std::vector<std::int64_t> numbers;
    if (value->kind == Kind::kList) {
      for (const PickleValue* item : value->items) {
        if (item->kind != Kind::kInt) wrong(name, "whole numbers");
        numbers.push_back(item->integer);
      }
    } else if (value->kind == Kind::kText) {
      for (std::size_t at = 0; at < value->text.size();) {
        const std::size_t end = std::min(value->text.find(',', at), value->text.size());
        std::int64_t number = 0;
        const char* stop = value->text.data() + end;
        const auto [read, error] = std::from_chars(value->text.data() + at, stop, number);
        if (error != std::errc() || read != stop) wrong(name, "whole numbers with commas between");
        numbers.push_back(number);
        at = end + 1;
      }
    } else {
      wrong(name, "whole numbers with commas between");
    }
    return numbers;
  }
  [[noreturn]] void wrong(const char* name, const std::string& wanted) const {
    const PickleValue* value = find(name);
    std::string got = "nothing";
    if (value != nullptr) {
      if (value->kind == Kind::kInt) got = fmt::format("{}", value->integer);
      if (value->kind == Kind::kFloat) got = fmt::format("{}", value->number);
      if (value->kind == Kind::kBool) got = value->truth ? "True" : "False";
      if (value->kind == Kind::kText || value->kind == Kind::kObject) got = value->text;
      if (value->kind == Kind::kList) got = "a list";
      if (value->kind == Kind::kDict) got = "a dict";
    }
    throw Error(Fault::kData, "{}: argument {}: got {}, wanted {}", where_, name, got, wanted);
  }

 private:
  // What Megatron-core's flags of one or several values have: the value, or a list of one.
  static const PickleValue* sole(const PickleValue* value) {
    const bool list = value != nullptr && value->kind == Kind::kList && value->items.size() == 1;
    return list ? value->items[0] : value;
  }

  const PickleValue& values_;
  const std::string& where_;
};

}  // namespace piton
