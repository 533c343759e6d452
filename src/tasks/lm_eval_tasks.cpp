#include "tasks/lm_eval_tasks.h"

#include "tasks/answer_rules.h"
#include "tasks/code_answers.h"
#include "tasks/math_answers.h"
#include "tasks/prepare_records.h"

namespace piton {
namespace {

const std::vector<std::string> kTest = {"test"};
const std::vector<std::string> kValidation = {"validation", "val", "valid", "dev"};
const std::vector<std::string> kTrain = {"train"};
const std::vector<std::string> kDev = {"dev"};
const std::vector<std::string> kHendrycksColumns = {"question", "A", "B", "C", "D", "answer"};
const std::vector<std::string> kLetters = {"A", "B", "C", "D"};
constexpr const char* kFourChoices = "{question|strip}\nA. {A}\nB. {B}\nC. {C}\nD. {D}\n";

// Questions with four choices, five examples of the split dev, and the letters as answers.
Task letters_task(const char* name, const char* description, const char* answer_word) {
  return {.name = name,
          .splits = kTest,
          .shot_splits = kDev,
          .has_subjects = true,
          .columns = kHendrycksColumns,
          .prepare = prepare_mmlu,
          .description = description,
          .prompt = std::string(kFourChoices) + answer_word,
          .choices = kLetters,
          .answer = "{answer}",
          .answer_labels = kLetters,
          .num_shots = 5,
          .metrics = {"acc", "acc_norm"}};
}

Task arc(const char* name, const char* prompt) {
  return {.name = name,
          .splits = {"test", "validation", "val", "dev"},
          .shot_splits = kTrain,
          .prepare = prepare_arc,
          .prompt = prompt,
          .choices_field = "texts",
          .answer = "{gold}",
          .random_shots = true,
          .metrics = {"acc", "acc_norm"}};
}

Task gsm8k() {
  return {
      .name = "gsm8k",
      .kind = TaskKind::kGeneration,
      .splits = kTest,
      .shot_splits = kTrain,
      .prepare = prepare_gsm8k,
      .prompt = "Question: {question}\nAnswer:",
      .answer = "{answer}",
      .num_shots = 5,
      .random_shots = true,
      .max_new_tokens = 256,
      .stop = {"Question:", "</s>", "<|im_end|>"},
      .filters = {{.name = "strict-match", .pattern = "#### \\K-?[0-9.,]+"},
                  {.name = "flexible-extract", .pattern = "-?[$0-9.,]{2,}|-?[0-9]+", .last = true}},
      .normalize = plain_number,
      .metrics = {"exact_match"}};
}

Task humaneval() {
  return {.name = "humaneval",
          .kind = TaskKind::kGeneration,
          .splits = kTest,
          .prepare = prepare_humaneval,
          .prompt = "{prompt}",
          .answer = "{test}\ncheck({entry_point})",
          .max_new_tokens = 1024,
          .stop = {"\nclass", "\ndef", "\n#", "\nif", "\nprint"},
          .filters = {{.name = "create_test"}},
          .program = completed_program,
          .program_seconds = 3,
          .metrics = {"pass@1"}};
}

Task bbh() {
  return {.name = "bbh",
          .kind = TaskKind::kGeneration,
          .splits = kTest,
          .has_subjects = true,
          .prompt = "Q: {input}\nA: Let's think step by step.\n",
          .answer = "{target}",
          .answer_delimiter = "",
          .num_shots = 3,
          .shot_texts = "{subject}.txt",
          .max_new_tokens = 1024,
          .stop = {"</s>", "Q", "\n\n"},
          .filters = {{.name = "get-answer", .pattern = "(?<=the answer is )(.*)(?=.)"}},
          .metrics = {"exact_match"}};
}

Task mmlu() {
  Task task = letters_task(
      "mmlu", "The following are multiple choice questions (with answers) about {subject}.\n\n",
      "Answer:");
  task.metrics = {"acc"};
  return task;
}

Task ceval() {
  Task task = letters_task(
      "ceval", "以下是中国关于{subject}的单项选择题，请选出其中的正确答案。\n\n", "答案：");
  task.splits = {"val", "validation"};
  return task;
}

Task agieval() {
  return {.name = "agieval",
          .splits = kTest,
          .has_subjects = true,
          .prepare = prepare_agieval,
          .prompt = "{query}",
          .choices_field = "options",
          .answer = "{gold}",
          .metrics = {"acc", "acc_norm"}};
}

Task agieval_cloze() {
  return {.name = "agieval_cloze",
          .kind = TaskKind::kGeneration,
          .splits = kTest,
          .has_subjects = true,
          .prepare = prepare_agieval_cloze,
          .prompt = "{query}",
          .answer = "{answer}",
          .max_new_tokens = 32,
          .stop = {"Q:"},
          .filters = {{}},
          .normalize = math_answer,
          .metrics = {"acc"}};
}

// Choices without a published test split.
Task validation_task(const char* name, const char* prompt, const char* answer) {
  return {.name = name,
          .splits = kValidation,
          .shot_splits = kTrain,
          .prompt = prompt,
          .answer = answer,
          .random_shots = true,
          .spare_shot = true,
          .metrics = {"acc", "acc_norm"}};
}

Task boolq() {
  Task task = validation_task("boolq", "{passage}\nQuestion: {question}?\nAnswer:", "{answer}");
  task.prepare = prepare_boolq;
  task.choices = {"no", "yes"};
  task.answer_labels = {"false", "true"};
  task.metrics = {"acc"};
  return task;
}

Task hellaswag() {
  Task task = validation_task("hellaswag", "{query}", "{label}");
  task.prepare = prepare_hellaswag;
  task.choices_field = "endings";
  return task;
}

Task piqa() {
  Task task = validation_task("piqa", "Question: {goal}\nAnswer:", "{label}");
  task.choices = {"{sol1}", "{sol2}"};
  return task;
}

Task winogrande() {
  Task task = validation_task("winogrande", "", "{gold}");
  task.prepare = prepare_winogrande;
  task.choices = {"{before}{option1}", "{before}{option2}"};
  task.ending = "{after}";
  task.metrics = {"acc"};
  return task;
}

Task lambada() {
  return {.name = "lambada",
          .kind = TaskKind::kLastWord,
          .splits = kTest,
          .prepare = prepare_lambada,
          .prompt = "{before}",
          .answer = "{last_word}",
          .metrics = {"perplexity", "acc"}};
}

Task wikitext() {
  return {.name = "wikitext",
          .kind = TaskKind::kPerplexity,
          .splits = {"test", "validation", "valid", "val"},
          .prepare = prepare_wikitext,
          .prompt = "{text}",
          .answer = "{page}",
          .metrics = {"word_perplexity", "byte_perplexity", "bits_per_byte"}};
}

// RewardBench (Lambert et al. 2024, arXiv:2403.13787): a reward model prefers the better answer.
Task rewardbench() {
  return {.name = "rewardbench",
          .kind = TaskKind::kPreference,
          .splits = kTest,
          .subject_field = "subset",
          .prompt = "{prompt}",
          .choices = {"{chosen}", "{rejected}"},
          .metrics = {"acc"}};
}

}  // namespace

std::vector<Task> lm_eval_tasks() {
  return {agieval(),
          agieval_cloze(),
          arc("arc_challenge", "Question: {question}\nAnswer:"),
          arc("arc_easy", "Question: {question}\nAnswer:"),
          bbh(),
          boolq(),
          ceval(),
          letters_task("cmmlu", "以下是关于{subject}的单项选择题，请直接给出正确答案的选项。\n\n",
                       "答案："),
          gsm8k(),
          hellaswag(),
          humaneval(),
          lambada(),
          mmlu(),
          arc("openbookqa", "{question}"),
          piqa(),
          rewardbench(),
          wikitext(),
          winogrande()};
}

}  // namespace piton
