// Records of published files, with the fields that the prompts of their tasks name. Each function
// accepts the layouts in which a data set is published; see the task's row for the fields it makes.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace piton {

using TaskRows = std::vector<nlohmann::json>;

// MMLU: question, A, B, C, D, answer (a letter). Layouts: columns A to D, or a list `choices` and
// the index of the answer.
TaskRows prepare_mmlu(nlohmann::json record, const std::string& where);
// BoolQ: passage, question, answer (true or false). Layouts: answer, or label 0 or 1 (SuperGLUE).
TaskRows prepare_boolq(nlohmann::json record, const std::string& where);
// HellaSwag: query, endings, label. Layouts: activity_label, ctx_a, ctx_b, endings, label; or
// query, choices, gold.
TaskRows prepare_hellaswag(nlohmann::json record, const std::string& where);
// LAMBADA: text without the white space around it.
TaskRows prepare_lambada(nlohmann::json record, const std::string& where);
// ARC, OpenBookQA: question, texts, gold. Layouts: choices {text, label}; or a list of {text,
// label} under question.choices.
TaskRows prepare_arc(nlohmann::json record, const std::string& where);
// WinoGrande: before, after, option1, option2, gold.
TaskRows prepare_winogrande(nlohmann::json record, const std::string& where);
// AGIEval: query, options, gold (a list). Layouts: passage, question, options, label; or query,
// choices, gold. Questions without options are left out.
TaskRows prepare_agieval(nlohmann::json record, const std::string& where);
// The questions of AGIEval with free answers, which prepare_agieval() leaves out: query, answer.
TaskRows prepare_agieval_cloze(nlohmann::json record, const std::string& where);
// AGIEval of MindSpeed-LLM (eval_utils/agi_utils.py): asked (passage and question), lines (the
// options), right (the letters, with commas if there are several, or a free answer without $).
// Layout: passage, question, options, label or answer.
TaskRows prepare_mindspeed_agieval(nlohmann::json record, const std::string& where);
// GSM8K: question, answer (text), number. An answer may be a list of one text.
TaskRows prepare_gsm8k(nlohmann::json record, const std::string& where);
// HumanEval: prompt, test, entry_point.
TaskRows prepare_humaneval(nlohmann::json record, const std::string& where);
// WikiText: a record for each page: page (as in the file), text (without the marks of its words).
TaskRows prepare_wikitext(nlohmann::json record, const std::string& where);

}  // namespace piton
