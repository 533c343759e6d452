// Answers to the problems of MATH (Hendrycks et al. 2021), as lm-evaluation-harness 0.4.13 compares
// them in its tasks hendrycks_math and minerva_math. Equal answers have equal forms. Its equality
// by SymPy, of answers whose forms differ, is not here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace piton {

// What is in the last \boxed of a solution, with or without braces; nothing without one.
std::optional<std::string> boxed_answer(std::string_view solution);

// hendrycks_math: what is between the first and the last dollar, else the whole text.
std::string answer_in_dollars(std::string_view text);
// Its strip_string(), or the answer as it is where that is an error.
std::string hendrycks_form(std::string_view answer);

// minerva_math: what follows "Final Answer: The final answer is", up to one character before " I
// hope it is correct.", which a text without it gets; else "[invalidanswer]".
std::string minerva_answer(std::string_view text);
// Its normalize_final_answer(): appendix D of Lewkowycz et al. 2022 (arXiv:2206.14858).
std::string minerva_form(std::string_view answer);

}  // namespace piton
