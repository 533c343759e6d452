// Answers in mathematical notation, as AGIEval compares them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace piton {

// A text for the answer that `text` ends with: equal answers have equal texts. It is what is in the
// last \boxed{}, else between dollars, else after an equals sign, else the last number; units,
// spaces and spellings of fractions and roots are made alike (tasks/agieval/utils.py of
// lm-evaluation-harness 0.4, parse_math_answer() and _strip_string()).
std::string math_answer(std::string_view text);

// The spellings made alike of an answer that is found already; nothing where the code of
// lm-evaluation-harness ends in an error. `strict`: as its hendrycks_math has them, where a slash
// between other things than two integers is one.
std::optional<std::string> math_form(std::string text, bool strict);

}  // namespace piton
