// Values as text: Python's str(), repr() and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "text/jinja/values/value.h"

namespace piton::jinja {

// str(): what {{ value }} prints. Throws TemplateFailure for values that Python prints with their
// address.
std::string to_text(const JinjaValue& value, Budget& budget);
// repr(): how values inside lists and dictionaries are printed.
std::string to_repr(const JinjaValue& value, Budget& budget);
// float.__repr__: the shortest digits that are the same number, 1e+16 and 0.0001 as Python.
std::string real_text(double value);

// The settings of json.dumps() that templates may choose.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; unset: on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
// Throws TemplateFailure for values that JSON does not have.
std::string to_json(const JinjaValue& value, const JsonStyle& style, Budget& budget);

}  // namespace piton::jinja
