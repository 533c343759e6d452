// The variable `loop` of a for block.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "text/jinja/values/value.h"

namespace piton::jinja {

struct Loop : Object {
  // Sets the next item and returns true, or returns false at the end. Items are computed when they
  // are needed: the condition of a loop may depend on what its body has set.
  std::function<bool(JinjaValue& item)> pull;
  std::optional<std::int64_t> size;  // known before the end
  std::int64_t index = -1;           // of the current item, from 0
  JinjaValue previous;
  JinjaValue current;
  std::vector<JinjaValue> ahead;  // items that were pulled early

  // Moves to the next item; false at the end.
  bool advance();
  // The item after the current one, or null.
  const JinjaValue* peek();
  std::int64_t total();
};

// index, index0, revindex, revindex0, first, last, length, previtem, nextitem, depth, depth0,
// cycle; nullopt for other names. Throws TemplateFailure for `changed`.
std::optional<JinjaValue> loop_attribute(const JinjaValue& loop, std::string_view name);

}  // namespace piton::jinja
