// Arguments of calls, and the values of parameters from them.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/values/value.h"

namespace piton::jinja {

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, JinjaValue>> named;

  // The named argument, removed from the list.
  std::optional<JinjaValue> take(std::string_view name);
};

// What filters, tests and functions need of the running template.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual Budget& budget() = 0;
  // What strftime_now() shows: seconds since 1970.
  virtual std::int64_t now_seconds() const = 0;
  // Keeps a namespace until the end: namespaces can contain each other.
  virtual void keep(std::shared_ptr<Namespace> space) = 0;
};

struct Function : Object {
  std::string name;
  std::function<JinjaValue(Arguments&)> call;
};
JinjaValue make_function(std::string name, int depth, std::function<JinjaValue(Arguments&)> call);

// Values of parameters by their names, in the order of `names`.
class Parameters {
 public:
  // Throws TemplateFailure if there are more arguments than names, an unknown or a double one.
  // `function`: for messages.
  Parameters(std::string function, Arguments& arguments,
             std::initializer_list<std::string_view> names);

  bool has(std::size_t index) const { return values_[index].has_value(); }
  // Throws TemplateFailure if it is missing.
  const JinjaValue& need(std::size_t index) const;
  // None if it is missing.
  const JinjaValue& get(std::size_t index) const;
  bool truth_or(std::size_t index, bool fallback) const;
  // Throw TemplateFailure if the value has another type.
  std::int64_t integer_or(std::size_t index, std::int64_t fallback) const;
  std::int64_t need_integer(std::size_t index) const;
  const std::string& need_text(std::size_t index) const;

 private:
  std::string function_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<JinjaValue>> values_;
};

}  // namespace piton::jinja
