// Filters: {{ value | name(arguments) }}.
#pragma once

#include <string_view>

#include "text/jinja/values/arguments.h"
#include "text/jinja/values/value.h"

namespace piton::jinja {

// What a filter is called with.
struct FilterCall {
  Runtime& runtime;
  std::string_view name;
  const JinjaValue& value;
  Arguments& arguments;

  Budget& budget() const { return runtime.budget(); }
  JinjaValue make_text(std::string text) const;
};
using Filter = JinjaValue (*)(const FilterCall&);

// Whether Jinja has a filter of this name. Some of them are not supported; applying one of these
// throws TemplateFailure.
bool is_filter(std::string_view name);
JinjaValue apply_filter(Runtime& runtime, std::string_view name, const JinjaValue& value,
                        Arguments arguments);

// The filters of one kind, or null.
Filter text_filter(std::string_view name);      // upper, indent, tojson, ...
Filter number_filter(std::string_view name);    // int, round, ...
Filter sequence_filter(std::string_view name);  // join, map, sort, ...

}  // namespace piton::jinja
