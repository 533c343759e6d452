// --enable-thinking: what reasoning templates (qwen3) do with <think>..</think> in answers.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/options/options.h"

namespace piton {

enum class Thinking : std::uint8_t {
  kAsGiven,  // none: thoughts are learned; where there is none, an empty one ends the prompt
  kKept,     // true: thoughts are learned, also the empty one of an answer that has none
  kRemoved,  // false: thoughts are removed, and an empty one ends the prompt
};

// "none", "true", "false", as in MindSpeed-LLM.
std::string_view name(Thinking thinking);

// A flag that may have its name as a value; alone it means true. A stored configuration omits none.
BoundOption bind_option(Option option, Thinking& value);

}  // namespace piton
