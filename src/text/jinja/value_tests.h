// Tests: {% if value is name(arguments) %}.
#pragma once

#include <string_view>

#include "text/jinja/values/arguments.h"
#include "text/jinja/values/value.h"

namespace piton::jinja {

// Whether Jinja has a test of this name; all are supported.
bool is_test(std::string_view name);
bool apply_test(Runtime& runtime, std::string_view name, const JinjaValue& value,
                Arguments arguments);

}  // namespace piton::jinja
