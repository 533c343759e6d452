// Options of `piton eval`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "cli/chat_variables.h"
#include "cli/commands/model_to_load.h"
#include "evaluate/answer_sampling.h"
#include "tasks/task_samples.h"
#include "text/special_tokens.h"

namespace piton::cli {

// Prompts that MindSpeed-LLM alone has.
struct MindSpeedPrompts {
  bool alternative_prompt = false;
  std::string prompt_type;
  std::string language = "en";
  std::string instruction_template;
  std::int64_t seed = 1234;

  bool any() const { return alternative_prompt || !prompt_type.empty(); }

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(
        Option{
            "alternative-prompt",
            "mindspeed: mmlu with the subject in every question, and the letter found in an answer "
            "of up to 128 tokens"},
        alternative_prompt);
    v(Option{"prompt-type",
             "mindspeed: mmlu as a conversation, by the template of a fine-tuned model (as "
             "--chat-template)",
             {.placeholder = "NAME"}},
      prompt_type);
    v(Option{"eval-language",
             "with --prompt-type: the words around the questions",
             {.choices = {"en", "zh"}}},
      language);
    v(Option{"instruction-template",
             "text that every prompt is put into, in the place of {instruction}",
             {.placeholder = "TEXT"}},
      instruction_template);
    v(Option{"seed",
             "with --prompt-type: draws the examples; with --num-samples: the answers",
             {.placeholder = "N"}},
      seed);
  }
};

// Questions as conversations.
struct AskedByTemplate {
  bool apply_chat_template = false;
  std::string chat_template;
  ChatVariables variables;
  std::optional<bool> multiturn;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"apply-chat-template",
             "ask by the chat template of the model; lm-eval: the description of a task is the "
             "system message; mindspeed: a prompt is one question"},
      apply_chat_template);
    v(Option{"chat-template",
             "for --apply-chat-template: file of a chat template in Jinja, the name of one of the "
             "model's, or one of --prompt-type (default: the model's own)",
             {.placeholder = "FILE"}},
      chat_template);
    variables.visit(v);
    v(Option{"fewshot-as-multiturn",
             "with --apply-chat-template: each example is a question and an answer of the "
             "conversation (default: so it is, unless the examples are one written text)",
             {.negation = "no-fewshot-as-multiturn"}},
      multiturn);
  }
};

struct EvalOptions {
  ModelToLoad model;
  std::vector<std::string> tasks;
  std::vector<std::string> paths;
  Protocol protocol = Protocol::kLmEval;
  std::optional<std::int64_t> num_shots;
  std::optional<std::int64_t> max_samples;
  std::optional<double> limit;
  std::string few_shot_path;
  std::optional<std::int64_t> max_new_tokens;
  std::vector<std::string> stop;
  std::string reasoning_end;
  bool strict_lambada = false;
  MindSpeedPrompts prompts;
  NeedleOptions needles;
  std::int64_t overlapping_eval = 0;
  std::int64_t batch_size = 8;
  std::optional<std::int64_t> sequence;
  std::string save_results;
  AskedByTemplate chat;
  bool runs_code = false;
  AnswerSampling sampling;  // its seed is that of `prompts`
  std::vector<std::int64_t> pass_at;
  SpecialTokensOptions special_tokens;
  bool json = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    model.visit(v);
    v(Option{"task",
             "tasks to evaluate (docs/evaluation.md lists them), or TOML files with a task",
             {.placeholder = "TASK"}},
      tasks);
    v(Option{"task-data-path",
             "files or folders with the questions; of several, the last one whose path holds the "
             "task's name",
             {.placeholder = "PATH"}},
      paths);
    v(Option{"protocol", "whose prompts and decisions: of lm-evaluation-harness, or MindSpeed-LLM"},
      Choice(protocol, {{"lm-eval", Protocol::kLmEval}, {"mindspeed", Protocol::kMindSpeed}}));
    v(Option{"num-shots",
             "number of examples before a question (default: as the task)",
             {.aliases = {"num-fewshot"}, .placeholder = "N"}},
      num_shots);
    v(Option{"max-eval-samples",
             "largest number of questions of each subject (default: all)",
             {.placeholder = "N"}},
      max_samples);
    v(Option{"limit",
             "the same as lm-evaluation-harness has it: a number of questions, or below 1 a share "
             "of each subject",
             {.placeholder = "N"}},
      limit);
    v(Option{"few-shot-path",
             "file or folder with written examples (mindspeed, bbh; default: searched next to the "
             "data)",
             {.placeholder = "PATH"}},
      few_shot_path);
    visit_ends(v);
    v(Option{"strict-lambada", "mindspeed: the whole last word of LAMBADA, not its last token"},
      strict_lambada);
    prompts.visit(v);
    needles.visit(v);
    v(Option{"overlapping-eval",
             "wikitext: tokens by which windows of the text advance (0: windows do not overlap)"},
      overlapping_eval);
    v(Option{"batch-size",
             "number of texts that are read or generated at once",
             {.aliases = {"evaluation-batch-size"}}},
      batch_size);
    v(Option{"seq-length",
             "most tokens that are read at once; longer prompts are cut on the left (default: as "
             "many as the model reads)",
             {.placeholder = "N"}},
      sequence);
    v(Option{"save-results",
             "folder for results.json and TASK.jsonl, a line a question; a killed evaluation "
             "continues there",
             {.placeholder = "DIR"}},
      save_results);
    chat.visit(v);
    v(Option{"allow-code-execution",
             "humaneval, mbpp: run the programs that the model writes, in a sandbox "
             "(docs/evaluation.md)"},
      runs_code);
    sampling.visit(v);
    v(Option{"pass-at-k",
             "with --num-samples: report pass@k for these k (default: 1, 10 and 100, up to "
             "--num-samples)",
             {.placeholder = "K"}},
      pass_at);
    special_tokens.visit(v);
    v(Option{"json", "print the JSON of results.json instead of the table"}, json);
  }

 private:
  // Where a generated answer ends.
  template <typename Visitor>
  void visit_ends(Visitor&& v) {
    v(Option{"max-new-tokens",
             "largest number of tokens of a generated answer (default: as the task)",
             {.aliases = {"max-new-token"}, .placeholder = "N"}},
      max_new_tokens);
    v(Option{"stop",
             "words that end a generated answer, in addition to those of the task",
             {.placeholder = "WORD"}},
      stop);
    v(
        Option{
            "think-end-token",
            "lm-eval: word that ends the reasoning of a model, such as </think>: generated answers "
            "are what comes after it",
            {.placeholder = "TEXT"}},
        reasoning_end);
  }
};

// Both ways to take a part of the questions.
TaskDataOptions data_options(const EvalOptions& options);

// The k of pass@k.
std::vector<std::int64_t> pass_at(const EvalOptions& options);

// What can be wrong before a task is read. Throws Error(kUsage) with the flag.
void check_options(const EvalOptions& options);

}  // namespace piton::cli
