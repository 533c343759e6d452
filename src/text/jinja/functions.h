// Functions that every template has: range, dict, namespace, raise_exception, strftime_now.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/values/arguments.h"
#include "text/jinja/values/value.h"

namespace piton::jinja {

// nullopt if there is none of this name. lipsum, cycler, joiner and self exist in Jinja; calling
// them throws TemplateFailure.
std::optional<JinjaValue> global_function(Runtime& runtime, std::string_view name);

// A name that a namespace may have; throws TemplateFailure for those that begin with "_".
void check_namespace_name(std::string_view name);

}  // namespace piton::jinja
