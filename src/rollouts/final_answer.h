// The final answer of a text that solves a problem, and whether two of them are the same.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace piton {

// What is in the last \boxed{} of `text`; else the rest of the line after the last "####"; else the
// last number: digits with a sign, commas between thousands and a fraction. Without white space
// around it. Nothing if the text has none of them.
std::optional<std::string> final_answer(std::string_view text);

// Whether the final answer of `text` is that of `reference`, which is the whole of it where it has
// neither \boxed{} nor "####". Numbers are compared by value, without $, % and commas; other
// answers as mathematical notation (math_answer() in tasks/math_answers.h).
bool answers_agree(std::string_view text, std::string_view reference);

}  // namespace piton
