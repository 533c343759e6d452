#include "text/jinja/filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace piton::jinja {
namespace {

constexpr auto kUnsupportedFilters =
    std::to_array<std::string_view>({"filesizeformat", "pprint", "random", "striptags", "urlencode",
                                     "urlize", "wordwrap", "xmlattr"});

bool is_unsupported(std::string_view name) {
  return std::find(kUnsupportedFilters.begin(), kUnsupportedFilters.end(), name) !=
         kUnsupportedFilters.end();
}

Filter filter_named(std::string_view name) {
  for (const auto& table : {text_filter, number_filter, sequence_filter}) {
    if (const Filter found = table(name)) return found;
  }
  return nullptr;
}

}  // namespace

JinjaValue FilterCall::make_text(std::string text) const {
  budget().use_bytes(text.size());
  return JinjaValue::text(std::move(text));
}

bool is_filter(std::string_view name) {
  return filter_named(name) != nullptr || is_unsupported(name);
}

JinjaValue apply_filter(Runtime& runtime, std::string_view name, const JinjaValue& value,
                        Arguments arguments) {
  runtime.budget().step();
  const Filter filter = filter_named(name);
  if (filter == nullptr) {
    throw TemplateFailure(is_unsupported(name)
                              ? fmt::format("the filter '{}' is not supported", name)
                              : fmt::format("no filter named '{}'", name));
  }
  return filter({runtime, name, value, arguments});
}

}  // namespace piton::jinja
