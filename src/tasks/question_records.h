// Records of published files, as prepare_records.h has them: sets of questions and problems that
// model cards of later years report.
#pragma once

#include <string>

#include "tasks/prepare_records.h"

namespace piton {

// SciQ: question, support, choices (the right one last), gold.
TaskRows prepare_sciq(nlohmann::json record, const std::string& where);
// CommonsenseQA: question, texts (five), gold. Layouts: as ARC.
TaskRows prepare_commonsense_qa(nlohmann::json record, const std::string& where);
// TruthfulQA: question, choices and gold (a list), of mc1_targets or of mc2_targets. Layout:
// question, mc1_targets and mc2_targets {choices, labels}.
TaskRows prepare_truthfulqa_mc1(nlohmann::json record, const std::string& where);
TaskRows prepare_truthfulqa_mc2(nlohmann::json record, const std::string& where);
// MMLU-Pro: category (with _ for blanks), question, lines (the options), answer (a letter), shot
// (of examples: the reasoning). Layout: question, options, answer, category, cot_content.
TaskRows prepare_mmlu_pro(nlohmann::json record, const std::string& where);
// TriviaQA: question, aliases (right answers). Layout: question, answer {aliases}.
TaskRows prepare_triviaqa(nlohmann::json record, const std::string& where);
// GPQA: question, choices, gold. Layout: Question, Correct Answer, Incorrect Answer 1 to 3.
TaskRows prepare_gpqa(nlohmann::json record, const std::string& where);
// MBPP: task, tests (lines), and the fields of a CodeQuestion. Layouts: text, test_list; or prompt,
// test_list (MBPP+).
TaskRows prepare_mbpp(nlohmann::json record, const std::string& where);
// IFEval: prompt, instructions (those of answers/instructions.h, as JSON). Layout: prompt,
// instruction_id_list, kwargs.
TaskRows prepare_ifeval(nlohmann::json record, const std::string& where);
// MATH: problem, solution, right (what is in the last box of the solution).
TaskRows prepare_math(nlohmann::json record, const std::string& where);

}  // namespace piton
