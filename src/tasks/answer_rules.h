// How answers are read in generated texts.
#pragma once

#include <string>
#include <string_view>

#include "tasks/task.h"

namespace piton {

// What `filter` finds in `text`; "[invalid]" if its pattern does not match, as in
// lm-evaluation-harness. Throws Error(kData) for a pattern that is not a regular expression.
std::string filtered_answer(const AnswerFilter& filter, std::string_view text);

// MMLU and CMMLU of MindSpeed-LLM: the last letter A to D (or "|", as its pattern [A|B|C|D] has it)
// with a full stop after it in the first line that has one; else the first character.
std::string letter_answer(std::string_view text);
// GSM8K of MindSpeed-LLM: what follows "The answer is " up to the next blank, before the next "Q:",
// where $ and commas are removed and full stops are blanks.
std::string number_after_phrase(std::string_view text);
// BBH of MindSpeed-LLM: the first line that is not empty.
std::string first_line(std::string_view text);
// AGIEval of MindSpeed-LLM: the first line after white space, without $ ( and ). Lines are those of
// Python's splitlines().
std::string bare_first_line(std::string_view text);
// The whole text without the white space around it.
std::string stripped_answer(std::string_view text);

// BBH of MindSpeed-LLM, for both answers: lower case, and "(A)" is "a".
std::string bbh_answer(std::string_view answer);
// TriviaQA of lm-evaluation-harness: the text without white space before it.
std::string left_stripped_answer(std::string_view text);
// exact_match of lm-evaluation-harness that ignores case and punctuation, for both answers: lower
// case, without the punctuation of ASCII.
std::string bare_answer(std::string_view answer);
// GSM8K of lm-evaluation-harness, for both answers: what follows the last "#### ", without commas,
// dollars and a full stop at the end, in lower case.
std::string plain_number(std::string_view answer);

}  // namespace piton
