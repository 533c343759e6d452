#include "tasks/mindspeed_tasks.h"

#include "tasks/answer_rules.h"
#include "tasks/answers/choice_phrases.h"
#include "tasks/code_answers.h"
#include "tasks/prepare_records.h"

namespace piton {
namespace {

const std::vector<std::string> kTestFiles = {"test"};
const std::vector<std::string> kFourChoiceColumns = {"question", "A", "B", "C", "D", "answer"};

// A generated answer, compared with the right one.
Task generated(const char* name, const char* prompt, const char* texts, std::int64_t tokens,
               std::string (*extract)(std::string_view)) {
  return {.name = name,
          .protocol = Protocol::kMindSpeed,
          .kind = TaskKind::kGeneration,
          .splits = kTestFiles,
          .has_subjects = true,
          .prompt = prompt,
          .answer_delimiter = "",
          .num_shots = 5,
          .shot_texts = texts,
          .max_new_tokens = tokens,
          .filters = {{.extract = extract}},
          .metrics = {"exact_match"}};
}

Task generated_letter(const char* name, const char* prompt, const char* texts, std::int64_t tokens,
                      std::string (*extract)(std::string_view)) {
  Task task = generated(name, prompt, texts, tokens, extract);
  task.columns = kFourChoiceColumns;
  task.prepare = prepare_mmlu;
  task.answer = "{answer}";
  return task;
}

// The examples are the records of dev, all of which the published files have in five rows.
Task mmlu_of_records(const char* prompt, std::int64_t tokens,
                     std::string (*extract)(std::string_view)) {
  Task task = generated_letter("mmlu", prompt, "", tokens, extract);
  task.shot_splits = {"dev"};
  return task;
}

Task mmlu(const TaskChoice& choice) {
  if (choice.alternative_prompt) {
    constexpr std::int64_t kLongAnswer = 128;  // tokens
    Task task = mmlu_of_records(
        "There is a single choice question about {subject_words}. Answer the question by replying "
        "A, B, C or D. \nQuestion: {question}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\nAnswer: ",
        kLongAnswer, choice_after_phrases);
    task.variant = "alternative prompt";
    task.answer_delimiter = "\n";
    return task;
  }
  if (choice.chat_prompt) {
    Task task =
        mmlu_of_records(choice.chinese ? "{question}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\n答案："
                                       : "{question}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\nAnswer: ",
                        2, letter_answer);
    task.description =
        choice.chinese ? "以下是中国关于{subject_name}考试的单项选择题，请选出其中的正确答案。\n\n"
                       : "The following are multiple choice questions (with answers) about "
                         "{subject_name}.\n\n";
    task.variant = choice.chinese ? "fine-tuned template, zh" : "fine-tuned template, en";
    task.seeded_shots = true;
    task.asks_in_chat = true;
    return task;
  }
  return generated_letter("mmlu", "{question}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\nAnswer:",
                          "mmlu_5shot_template.json", 2, letter_answer);
}

Task mmlu_by_subject(const TaskChoice& choice) {
  Task task = mmlu(choice);
  task.subject_field = "subject";  // of the files on Hugging Face
  return task;
}

}  // namespace

std::vector<Task> mindspeed_tasks(const TaskChoice& choice) {
  const bool strict_lambada = choice.strict_lambada;
  Task agieval = generated("agieval", "   {asked}", "AGI_fewshot.json", 32, bare_first_line);
  agieval.prepare = prepare_mindspeed_agieval;
  agieval.answer = "{right}";
  agieval.ending = "{lines}";

  Task bbh = generated("bbh", "Q: {input}\nA:", "bbh_template.json", 32, first_line);
  bbh.answer = "{target}";
  bbh.num_shots = 3;
  bbh.normalize = bbh_answer;

  Task gsm8k =
      generated("gsm8k", "{question}", "gsm8k_3shot_template.json", 256, number_after_phrase);
  gsm8k.has_subjects = false;
  gsm8k.prepare = prepare_gsm8k;
  gsm8k.answer = "{number}";
  gsm8k.num_shots = 3;
  gsm8k.shot_texts_entry = "few_shot";

  Task ceval = generated_letter("ceval", "问：{question}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\n答：",
                                "ceval_5shot_template.json", 1, stripped_answer);
  ceval.splits = {"val", "validation"};

  Task humaneval{
      .name = "humaneval",
      .protocol = Protocol::kMindSpeed,
      .kind = TaskKind::kGeneration,
      .splits = kTestFiles,
      .prepare = prepare_humaneval,
      .prompt =
          "The definition and function description of the python function are as "
          "follows. Please complete the implementation of the python function.\n{prompt}",
      .answer = "{test}\ncheck({entry_point})",
      .max_new_tokens = 1024,
      .filters = {{}},
      .program = extracted_program,
      .program_seconds = 10,
      .metrics = {"pass@1"}};

  Task lambada{.name = "lambada",
               .protocol = Protocol::kMindSpeed,
               .kind = strict_lambada ? TaskKind::kLastWord : TaskKind::kLastToken,
               .splits = kTestFiles,
               .prepare = prepare_lambada,
               .prompt = strict_lambada ? "{before}" : "{text}",
               .answer = strict_lambada ? "{last_word}" : "",
               .metrics = {"acc"}};
  return {std::move(agieval),
          std::move(bbh),
          {.name = "boolq",
           .protocol = Protocol::kMindSpeed,
           .kind = TaskKind::kNextToken,
           .splits = {"test", "validation", "val", "dev"},
           .prepare = prepare_boolq,
           .prompt = "{passage}\nQuestion: {question}?\nAnswer:",
           .choices = {"Yes", "No"},
           .answer = "{answer}",
           .answer_labels = {"true", "false"},
           .answer_delimiter = "",
           .metrics = {"acc"}},
          std::move(ceval),
          generated_letter("cmmlu", "{question}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\n答案：",
                           "cmmlu_5shot_template.json", 2, letter_answer),
          std::move(gsm8k),
          std::move(humaneval),
          std::move(lambada),
          mmlu_by_subject(choice),
          {.name = "needlebench",
           .protocol = Protocol::kMindSpeed,
           .kind = TaskKind::kGeneration,
           .has_subjects = true,
           .max_new_tokens = 64,
           .filters = {{}},
           .has_needles = true,
           .metrics = {"score", "acc"}}};
}

}  // namespace piton
