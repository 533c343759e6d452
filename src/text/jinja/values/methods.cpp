#include "text/jinja/values/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/jinja/values/loop.h"
#include "text/jinja/values/operators.h"

namespace piton::jinja {
namespace {

template <std::size_t N>
bool among(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

JinjaValue unsafe(const JinjaValue& value, std::string_view name) {
  return JinjaValue::undefined(
      fmt::format("access to attribute '{}' of '{}' object is unsafe", name, type_name(value)));
}

[[noreturn]] void refuse(const JinjaValue& value, std::string_view name) {
  throw TemplateFailure(
      fmt::format("'{}' of a value of type '{}' is not supported", name, type_name(value)));
}

// The method `body` of `self`, as a function of its arguments.
template <typename F>
JinjaValue bound(std::string_view name, const JinjaValue& self, F body) {
  return make_function(std::string(name), self.depth() + 1,
                       [self, body](Arguments& arguments) { return body(self, arguments); });
}

JinjaValue dict_get(const JinjaValue& self, Arguments& arguments) {
  const Parameters parameters("get", arguments, {"key", "default"});
  check_key(parameters.need(0));
  const JinjaValue* found = self.dict().find(parameters.need(0));
  return found != nullptr ? *found : parameters.get(1);
}

std::optional<JinjaValue> dict_method(const JinjaValue& value, std::string_view name) {
  static constexpr auto kChanging =
      std::to_array<std::string_view>({"clear", "pop", "popitem", "setdefault", "update"});
  if (among(kChanging, name)) return unsafe(value, name);
  if (name == "get") return bound(name, value, dict_get);
  const auto view = [&](Kind kind) {
    return bound(name, value,
                 [kind, name = std::string(name)](const JinjaValue& self, Arguments& a) {
                   const Parameters parameters(name, a, {});
                   return JinjaValue::view(kind, self);
                 });
  };
  if (name == "keys") return view(Kind::kKeys);
  if (name == "values") return view(Kind::kValues);
  if (name == "items") return view(Kind::kItems);
  if (name == "copy") return view(Kind::kDict);
  if (name == "fromkeys") refuse(value, name);
  return std::nullopt;
}

JinjaValue index_of(const JinjaValue& self, Arguments& arguments) {
  const Parameters parameters("index", arguments, {"value"});
  const Values& items = self.items();
  const auto found = std::find_if(items.begin(), items.end(), [&](const JinjaValue& item) {
    return equal(item, parameters.need(0));
  });
  if (found == items.end()) throw TemplateFailure("index(): the value is not in the list");
  return JinjaValue::integer(found - items.begin());
}

JinjaValue count_of(const JinjaValue& self, Arguments& arguments) {
  const Parameters parameters("count", arguments, {"value"});
  return JinjaValue::integer(
      std::count_if(self.items().begin(), self.items().end(),
                    [&](const JinjaValue& item) { return equal(item, parameters.need(0)); }));
}

std::optional<JinjaValue> sequence_method(const JinjaValue& value, std::string_view name) {
  static constexpr auto kChanging = std::to_array<std::string_view>(
      {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  if (name == "index") return bound(name, value, index_of);
  if (name == "count") return bound(name, value, count_of);
  if (!value.is(Kind::kList)) return std::nullopt;
  if (among(kChanging, name)) return unsafe(value, name);
  if (name == "copy")
    return bound(name, value, [](const JinjaValue& self, Arguments&) { return self; });
  return std::nullopt;
}

// Attributes of numbers exist in Python, but no template needs them.
void refuse_number_attribute(const JinjaValue& value, std::string_view name) {
  static constexpr auto kOfNumbers = std::to_array<std::string_view>(
      {"real", "imag", "conjugate", "numerator", "denominator", "as_integer_ratio", "bit_length",
       "bit_count", "to_bytes", "from_bytes", "is_integer", "hex", "fromhex"});
  if (among(kOfNumbers, name)) refuse(value, name);
}

std::optional<JinjaValue> range_attribute(const JinjaValue& value, std::string_view name) {
  const auto& range = value.as<Range>();
  if (name == "start") return JinjaValue::integer(range.start);
  if (name == "stop") return JinjaValue::integer(range.stop);
  if (name == "step") return JinjaValue::integer(range.step);
  if (name == "index" || name == "count") refuse(value, name);
  return std::nullopt;
}

}  // namespace

std::optional<JinjaValue> known_attribute(Runtime& runtime, const JinjaValue& value,
                                          std::string_view name) {
  if (name.starts_with("__")) return unsafe(value, name);
  switch (value.kind()) {
    case Kind::kText:
      return text_method(runtime, value, name);
    case Kind::kDict:
      return dict_method(value, name);
    case Kind::kList:
    case Kind::kTuple:
      return sequence_method(value, name);
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFloat:
      refuse_number_attribute(value, name);
      return std::nullopt;
    case Kind::kRange:
      return range_attribute(value, name);
    case Kind::kNamespace: {
      const JinjaValue* found = value.as<Namespace>().find(name);
      return found == nullptr ? std::nullopt : std::optional<JinjaValue>(*found);
    }
    case Kind::kLoop:
      return loop_attribute(value, name);
    case Kind::kKeys:
    case Kind::kValues:
    case Kind::kItems:
      if (name == "isdisjoint" || name == "mapping") refuse(value, name);
      return std::nullopt;
    case Kind::kIterator:
      if (name == "send" || name == "throw" || name == "close") refuse(value, name);
      return std::nullopt;
    case Kind::kFunction:
      if (name == "name") return JinjaValue::text(value.as<Function>().name);
      refuse(value, name);
    default:
      return std::nullopt;
  }
}

}  // namespace piton::jinja
