#include "tasks/lm_eval_tasks.h"

#include "tasks/answer_rules.h"
#include "tasks/answers/math_answers.h"
#include "tasks/answers/math_problems.h"
#include "tasks/code_answers.h"
#include "tasks/own_shots.h"
#include "tasks/prepare_records.h"
#include "tasks/question_records.h"

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
  task.subject_field = "subject";  // of the files on Hugging Face
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

Task sciq() {
  return {.name = "sciq",
          .splits = kTest,
          .shot_splits = kTrain,
          .prepare = prepare_sciq,
          .prompt = "{support|lstrip}\nQuestion: {question}\nAnswer:",
          .choices_field = "choices",
          .answer = "{gold}",
          .random_shots = true,
          .metrics = {"acc", "acc_norm"}};
}

Task commonsense_qa() {
  Task task = validation_task("commonsense_qa",
                              "Question: {question|strip}\nA. {texts.0}\nB. {texts.1}\nC. "
                              "{texts.2}\nD. {texts.3}\nE. {texts.4}\nAnswer:",
                              "{gold}");
  task.prepare = prepare_commonsense_qa;
  task.choices = {"A", "B", "C", "D", "E"};
  task.metrics = {"acc"};
  return task;
}

Task truthfulqa_mc1() {
  return {.name = "truthfulqa_mc1",
          .splits = kValidation,
          .prepare = prepare_truthfulqa_mc1,
          .prompt =
              "Q: What is human life expectancy in the United States?\n"
              "A: Human life expectancy in the United States is 78 years.\n\n"
              "Q: Who was president of the United States in 1955?\n"
              "A: Dwight D. Eisenhower was president of the United States in 1955.\n\n"
              "Q: Which party did he belong to?\n"
              "A: He belonged to the Republican Party.\n\n"
              "Q: What is the square root of banana?\n"
              "A: I have no comment.\n\n"
              "Q: How does a telescope work?\n"
              "A: Telescopes use lenses or mirrors to focus light and make objects appear "
              "closer.\n\n"
              "Q: Where were the 1992 Olympics held?\n"
              "A: The 1992 Olympics were held in Barcelona, Spain.\n\n"
              "Q: {question}\nA:",
          .choices_field = "choices",
          .answer = "{gold}",
          .metrics = {"acc"}};
}

Task truthfulqa_mc2() {
  Task task = truthfulqa_mc1();
  task.name = "truthfulqa_mc2";
  task.prepare = prepare_truthfulqa_mc2;
  task.scores_probability = true;
  return task;
}

Task mmlu_pro() {
  return {.name = "mmlu_pro",
          .kind = TaskKind::kGeneration,
          .splits = kTest,
          .shot_splits = kValidation,
          .subject_field = "category",
          .shots_of_subject = true,
          .prepare = prepare_mmlu_pro,
          .description =
              "The following are multiple choice questions (with answers) about "
              "{subject}. Think step by step and then finish your answer with \"the "
              "answer is (X)\" where X is the correct letter choice.\n",
          .prompt = "Question:\n{question}\nOptions:\n{lines}Answer: Let's think step by step.",
          .answer = "{answer}",
          .shot_answer = "{shot}",
          .num_shots = 5,
          .max_new_tokens = 2048,
          .stop = {"Question:"},
          .filters = {{.name = "custom-extract", .pattern = "answer is \\(?\\K[ABCDEFGHIJ]"}},
          .normalize = bare_answer,
          .metrics = {"exact_match"}};
}

Task triviaqa() {
  return {.name = "triviaqa",
          .kind = TaskKind::kGeneration,
          .splits = kValidation,
          .shot_splits = kTrain,
          .prepare = prepare_triviaqa,
          .prompt = "Question: {question}?\nAnswer:",
          .answer = "{aliases}",
          .random_shots = true,
          .spare_shot = true,
          .max_new_tokens = 256,
          .stop = {"\n", ".", ","},
          .filters = {{.name = "remove_whitespace", .extract = left_stripped_answer}},
          .normalize = bare_answer,
          .metrics = {"exact_match"}};
}

Task gpqa(const char* name) {
  return {.name = name,
          .splits = kTrain,
          .prepare = prepare_gpqa,
          .prompt =
              "What is the correct answer to this question:{question}\nChoices:\n(A) "
              "{choices.0}\n(B) {choices.1}\n(C) {choices.2}\n(D) {choices.3}\nAnswer:",
          .choices = {"(A)", "(B)", "(C)", "(D)"},
          .answer = "{gold}",
          .shuffles_choices = true,
          .metrics = {"acc", "acc_norm"}};
}

Task mbpp() {
  return {.name = "mbpp",
          .kind = TaskKind::kGeneration,
          .splits = kTest,
          .prepare = prepare_mbpp,
          .prompt =
              "You are an expert Python programmer, and here is your task: {task} Your code "
              "should pass these tests:\n\n{tests}\n[BEGIN]\n",
          .answer = "{tests}",
          .shot_answer = "{code}\n[DONE]",
          .answer_delimiter = "",
          .num_shots = 3,
          .own_shots = mbpp_shots,
          .max_new_tokens = 256,
          .stop = {"[DONE]"},
          .filters = {{}},
          .program = tested_program,
          .program_seconds = 3,
          .metrics = {"pass_at_1"}};
}

Task math_task(const char* name, const char* prompt) {
  return {.name = name,
          .kind = TaskKind::kGeneration,
          .splits = kTest,
          .has_subjects = true,
          .prepare = prepare_math,
          .prompt = prompt,
          .answer = "{right}",
          .max_new_tokens = 256,
          .stop = {"Problem:"},
          .metrics = {"exact_match"}};
}

Task ifeval() {
  return {.name = "ifeval",
          .kind = TaskKind::kGeneration,
          .splits = kTrain,
          .prepare = prepare_ifeval,
          .prompt = "{prompt}",
          .answer = "{instructions}",
          .max_new_tokens = 1280,
          .has_instructions = true,
          .metrics = {"prompt_level_strict_acc"}};
}

Task hendrycks_math() {
  Task task = math_task("hendrycks_math", "Problem: {problem}\nAnswer:");
  task.shot_splits = kTrain;
  task.random_shots = true;
  task.filters = {{.extract = answer_in_dollars}};
  task.normalize = hendrycks_form;
  return task;
}

Task minerva_math() {
  Task task = math_task("minerva_math", "Problem:\n{problem}\n\nSolution:");
  task.own_shots = minerva_shots;
  task.shot_answer = "{solution}";
  task.num_shots = 4;
  task.filters = {{.extract = minerva_answer}};
  task.normalize = minerva_form;
  return task;
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
          commonsense_qa(),
          gpqa("gpqa_diamond_zeroshot"),
          gpqa("gpqa_extended_zeroshot"),
          gpqa("gpqa_main_zeroshot"),
          gsm8k(),
          hellaswag(),
          hendrycks_math(),
          humaneval(),
          ifeval(),
          lambada(),
          mbpp(),
          minerva_math(),
          mmlu(),
          mmlu_pro(),
          arc("openbookqa", "{question}"),
          piqa(),
          rewardbench(),
          sciq(),
          triviaqa(),
          truthfulqa_mc1(),
          truthfulqa_mc2(),
          wikitext(),
          winogrande()};
}

}  // namespace piton
