// Methods and attributes of values.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/values/arguments.h"
#include "text/jinja/values/value.h"

namespace piton::jinja {

// What Python finds as value.name before it looks for an entry "name": methods, attributes of
// namespaces and loops. Methods that change a value, and names that begin with "_", are an
// undefined value, as in Jinja's sandbox. Throws TemplateFailure for methods that exist in Python
// and are not supported here.
std::optional<JinjaValue> known_attribute(Runtime& runtime, const JinjaValue& value,
                                          std::string_view name);

// A method of a text; nullopt if Python has none with this name.
std::optional<JinjaValue> text_method(Runtime& runtime, const JinjaValue& value,
                                      std::string_view name);

}  // namespace piton::jinja
