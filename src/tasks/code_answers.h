// Generated code as programs of Python with the tests of its question.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "tasks/task.h"

namespace piton {

// The question in a record with the texts prompt, test, entry_point.
CodeQuestion code_question_of(const nlohmann::json& fields);

// HumanEval of lm-evaluation-harness (tasks/humaneval/utils.py, build_predictions): the prompt with
// what follows it, then the tests.
std::string completed_program(const CodeQuestion& question, std::string_view answer);

// MBPP of lm-evaluation-harness (code_eval of the package evaluate): the answer, then the tests.
std::string tested_program(const CodeQuestion& question, std::string_view answer);

// HumanEval of AscendSpeed and MindSpeed-LLM (human_eval.py, extract_answer_code): of the prompt
// and the answer only imports, heads of functions and lines that are indented, then the tests. The
// program ends before the first other line after a function whose name is written with a space
// before its parenthesis, as there.
std::string extracted_program(const CodeQuestion& question, std::string_view answer);

}  // namespace piton
