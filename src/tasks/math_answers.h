// Answers in mathematical notation, as AGIEval compares them.
#pragma once

#include <string>
#include <string_view>

namespace piton {

// A text for the answer that `text` ends with: equal answers have equal texts. It is what is in the
// last \boxed{}, else between dollars, else after an equals sign, else the last number; units,
// spaces and spellings of fractions and roots are made alike (tasks/agieval/utils.py of
// lm-evaluation-harness 0.4, parse_math_answer() and _strip_string()).
std::string math_answer(std::string_view text);

}  // namespace piton
