#include "tasks/question_records.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "tasks/answers/instructions.h"
#include "tasks/answers/math_problems.h"
#include "tasks/answers/python_text.h"
#include "tasks/record_fields.h"
#include "tasks/task_records.h"

namespace piton {
namespace {

using Json = nlohmann::json;

TaskRows truthfulqa_rows(const Json& record, const std::string& where, const char* targets) {
  const Json* field = find_field(record, targets);
  if (!has_all(record, {"question"}) || field == nullptr || !field->is_object() ||
      !has_all(*field, {"choices", "labels"}))
    refuse_columns(record, where, fmt::format("question, {} (choices, labels)", targets));
  const Json& labels = *find_field(*field, "labels");
  Json out = {{"question", text_field(record, "question")},
              {"choices", texts_of(*find_field(*field, "choices"), where)},
              {"gold", Json::array()}};
  for (std::size_t i = 0; labels.is_array() && i < labels.size(); ++i) {
    if (labels[i] == 1) out["gold"].push_back(i);
  }
  if (!labels.is_array() || labels.size() != out["choices"].size() || out["gold"].empty())
    throw Error(Fault::kData,
                "{}: wanted a label, 0 or 1, of each of {} choices, and one that is 1", where,
                out["choices"].size());
  return {std::move(out)};
}

// preprocess() of tasks/gpqa/zeroshot/utils.py.
std::string gpqa_text(const Json& record, std::string_view name) {
  const Json* value = find_field(record, name);
  if (value == nullptr || value->is_null()) return " ";
  const std::string text = text_field(record, name);
  return python_replaced(python_replaced(python_stripped(text), " [title]", ". "), "  ", " ");
}

}  // namespace

TaskRows prepare_sciq(Json record, const std::string& where) {
  if (!has_all(record, {"question", "distractor1", "distractor2", "distractor3", "correct_answer",
                        "support"}))
    refuse_columns(record, where,
                   "question, distractor1, distractor2, distractor3, correct_answer, support");
  record["choices"] = {text_field(record, "distractor1"), text_field(record, "distractor2"),
                       text_field(record, "distractor3"), text_field(record, "correct_answer")};
  record["gold"] = 3;
  return {std::move(record)};
}

TaskRows prepare_commonsense_qa(Json record, const std::string& where) {
  TaskRows rows = prepare_arc(std::move(record), where);
  const std::size_t size = rows.front()["texts"].size();
  if (size != 5) throw Error(Fault::kData, "{}: got {} choices, wanted five", where, size);
  return rows;
}

TaskRows prepare_truthfulqa_mc1(Json record, const std::string& where) {
  return truthfulqa_rows(record, where, "mc1_targets");
}

TaskRows prepare_truthfulqa_mc2(Json record, const std::string& where) {
  return truthfulqa_rows(record, where, "mc2_targets");
}

TaskRows prepare_mmlu_pro(Json record, const std::string& where) {
  if (!has_all(record, {"question", "options", "answer", "category"}))
    refuse_columns(record, where, "question, options, answer, category, cot_content");
  constexpr std::string_view kLetters = "ABCDEFGHIJ";
  std::string lines;
  std::size_t count = 0;
  for (const std::string& option : texts_of(*find_field(record, "options"), where)) {
    if (count == kLetters.size()) break;
    lines += fmt::format("{}. {}\n", kLetters[count++], python_stripped(option));
  }
  record["lines"] = lines;
  record["category"] = python_replaced(text_field(record, "category"), " ", "_");
  record["shot"] =
      python_replaced(text_field(record, "cot_content"), "A: Let's think step by step. ", "");
  return {std::move(record)};
}

TaskRows prepare_triviaqa(Json record, const std::string& where) {
  const Json* answer = find_field(record, "answer");
  const Json* aliases =
      answer != nullptr && answer->is_object() ? find_field(*answer, "aliases") : nullptr;
  if (!has_all(record, {"question"}) || aliases == nullptr || !aliases->is_array() ||
      aliases->empty())
    refuse_columns(record, where,
                   "question, answer (with a list aliases; the published test split has none)");
  return {
      Json{{"question", text_field(record, "question")}, {"aliases", texts_of(*aliases, where)}}};
}

TaskRows prepare_gpqa(Json record, const std::string& where) {
  if (!has_all(record, {"Question", "Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2",
                        "Incorrect Answer 3"}))
    refuse_columns(record, where, "Question, Correct Answer, Incorrect Answer 1 to 3");
  return {Json{{"question", text_field(record, "Question")},
               {"choices",
                {gpqa_text(record, "Incorrect Answer 1"), gpqa_text(record, "Incorrect Answer 2"),
                 gpqa_text(record, "Incorrect Answer 3"), gpqa_text(record, "Correct Answer")}},
               {"gold", 3}}};
}

TaskRows prepare_mbpp(Json record, const std::string& where) {
  const Json* tests = find_field(record, "test_list");
  const std::string task = text_field(record, has_all(record, {"text"}) ? "text" : "prompt");
  if (task.empty() || tests == nullptr || !tests->is_array() || tests->empty())
    refuse_columns(record, where, "text (or prompt), test_list");
  // lm-evaluation-harness asks with three tests and runs these.
  std::vector<std::string> lines = texts_of(*tests, where);
  lines.resize(3);
  record["task"] = task;
  record["tests"] = fmt::format("{}", fmt::join(lines, "\n"));
  record["code"] = text_field(record, "code");
  record["test"] = record["tests"];
  record["prompt"] = "";
  record["entry_point"] = "";
  return {std::move(record)};
}

TaskRows prepare_ifeval(Json record, const std::string& where) {
  if (!has_all(record, {"prompt", "instruction_id_list", "kwargs"}))
    refuse_columns(record, where, "prompt, instruction_id_list, kwargs");
  static_cast<void>(read_instructions(record, where));
  const Json instructions = {{"instruction_id_list", record["instruction_id_list"]},
                             {"kwargs", record["kwargs"]}};
  return {Json{{"prompt", text_field(record, "prompt")}, {"instructions", instructions.dump()}}};
}

TaskRows prepare_math(Json record, const std::string& where) {
  if (!has_all(record, {"problem", "solution"})) refuse_columns(record, where, "problem, solution");
  const std::optional<std::string> right = boxed_answer(text_field(record, "solution"));
  if (!right)
    throw Error(Fault::kData, "{}: the solution has no answer in \\boxed{{}}, wanted one", where);
  record["right"] = *right;
  return {std::move(record)};
}

}  // namespace piton
