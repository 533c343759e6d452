// Python's formatting of texts: "%s" % value, and "{}".format(value).
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/values/arguments.h"
#include "text/jinja/values/value.h"

namespace piton::jinja {

// `text` % `values`: a tuple has several values, a dictionary those of %(name)s. Throws
// TemplateFailure if values are missing, left over, or of another type.
std::string formatted(std::string_view text, const JinjaValue& values, Budget& budget);

// `text`.format(...): {}, {0}, {name}, with !s and !r; format specifications after ":" and
// attributes are not supported and throw TemplateFailure.
std::string formatted_fields(std::string_view text, const Arguments& arguments, Budget& budget);

}  // namespace piton::jinja
