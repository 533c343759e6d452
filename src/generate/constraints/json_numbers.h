// Numbers of JSON within limits, as grammars.
#pragma once

#include <optional>
#include <string_view>

#include "generate/constraints/byte_grammar.h"

namespace piton {

struct NumberLimit {
  double value = 0;
  bool exclusive = false;
};

struct NumberLimits {
  std::optional<NumberLimit> least;
  std::optional<NumberLimit> most;
};

// Whole numbers of at most 18 digits, without fraction and exponent.
GrammarBuilder::Part json_integer(GrammarBuilder& grammar, const NumberLimits& limits);

// Numbers; with limits, without exponent and with few more decimals than the limits have, so that
// no rounding to double crosses a limit. Throws Error(kUsage), beginning with `where`, for limits
// with more than 15 digits before the point or 30 after it.
GrammarBuilder::Part json_number(GrammarBuilder& grammar, const NumberLimits& limits,
                                 std::string_view where);

}  // namespace piton
