#include "text/jinja/values/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace piton::jinja {

std::optional<JinjaValue> Arguments::take(std::string_view name) {
  const auto found = std::find_if(named.begin(), named.end(),
                                  [&](const auto& argument) { return argument.first == name; });
  if (found == named.end()) return std::nullopt;
  JinjaValue value = std::move(found->second);
  named.erase(found);
  return value;
}

JinjaValue make_function(std::string name, int depth, std::function<JinjaValue(Arguments&)> call) {
  auto made = std::make_shared<Function>();
  made->name = std::move(name);
  made->depth = depth;
  made->call = std::move(call);
  return JinjaValue::object(Kind::kFunction, std::move(made));
}

Parameters::Parameters(std::string function, Arguments& arguments,
                       std::initializer_list<std::string_view> names)
    : function_(std::move(function)), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names.size()) {
    throw TemplateFailure(fmt::format("{}() got {} arguments, wanted at most {}", function_,
                                      arguments.positional.size(), names.size()));
  }
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
      throw TemplateFailure(fmt::format("{}() got an unexpected argument '{}'", function_, name));
    }
    std::optional<JinjaValue>& slot = values_[static_cast<std::size_t>(found - names_.begin())];
    if (slot) throw TemplateFailure(fmt::format("{}() got two values for '{}'", function_, name));
    slot = value;
  }
}

const JinjaValue& Parameters::need(std::size_t index) const {
  if (!values_[index]) {
    throw TemplateFailure(fmt::format("{}() needs the argument '{}'", function_, names_[index]));
  }
  return *values_[index];
}

const JinjaValue& Parameters::get(std::size_t index) const {
  static const JinjaValue kNone;
  return values_[index] ? *values_[index] : kNone;
}

bool Parameters::truth_or(std::size_t index, bool fallback) const {
  return values_[index] ? truth(*values_[index]) : fallback;
}

std::int64_t Parameters::need_integer(std::size_t index) const {
  const JinjaValue& value = need(index);
  if (!value.is_integral()) {
    throw TemplateFailure(fmt::format("{}(): '{}' is a {}, wanted an integer", function_,
                                      names_[index], type_name(value)));
  }
  return value.as_integer();
}

std::int64_t Parameters::integer_or(std::size_t index, std::int64_t fallback) const {
  return values_[index] ? need_integer(index) : fallback;
}

const std::string& Parameters::need_text(std::size_t index) const {
  const JinjaValue& value = need(index);
  if (value.is_undefined()) throw TemplateFailure(value.str());
  if (!value.is_text()) {
    throw TemplateFailure(fmt::format("{}(): '{}' is a {}, wanted a text", function_, names_[index],
                                      type_name(value)));
  }
  return value.str();
}

}  // namespace piton::jinja
