// Facts of an evaluation task: where its questions are, how they are asked, what counts as right.
//
// A task is a row of a table (task_table.h) or a TOML file (task_file.h). One reader makes its
// samples (task_samples.h), one runner asks a model (evaluate/evaluation.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/options/options.h"

namespace piton {

// The program whose prompts and decisions a task has: the same data gives other scores otherwise.
enum class Protocol : std::uint8_t { kLmEval, kMindSpeed };
std::string_view name(Protocol protocol);

// The options of the command that asks for tasks, for errors; "" if it has none.
struct TaskFlags {
  std::string_view tasks = "--task";
  std::string_view paths = "--task-data-path";
  std::string_view protocol = "--protocol";
  std::string_view num_shots = "--num-shots";
  std::string_view few_shot_path = "--few-shot-path";

  // ", or --num-shots 0", where examples are missing.
  std::string or_no_shots() const {
    return num_shots.empty() ? "" : ", or " + std::string(num_shots) + " 0";
  }
};

// Which of the tasks of one name.
struct TaskChoice {
  TaskFlags flags;
  Protocol protocol = Protocol::kLmEval;
  // Of kMindSpeed alone.
  bool strict_lambada = false;  // the last word, not the last token
  bool alternative_prompt =
      false;                 // mmlu: the subject in every question, a letter in a long answer
  bool chat_prompt = false;  // mmlu: turns of a conversation, for fine-tuned models
  bool chinese = false;      // of chat_prompt: its words
};

enum class TaskKind : std::uint8_t {
  kMultipleChoice,  // the choice with the largest log-likelihood after the prompt
  kNextToken,       // the same of the last token of each choice alone
  kLastWord,        // whether the last word of a text is the greedy continuation
  kLastToken,       // the same of the last token
  kGeneration,      // an answer in a greedily generated text
  kPerplexity,      // the likelihood of whole texts
  kPreference,      // which of two answers has the higher reward
};

// How the answer is found in a generated text; the filters of lm-evaluation-harness.
struct AnswerFilter {
  std::string name = "none";
  std::string pattern;  // a match of this regular expression; empty: the whole text
  bool last = false;    // the last match instead of the first one
  std::string (*extract)(std::string_view text) = nullptr;  // instead of a pattern
};

// A function to complete.
struct CodeQuestion {
  std::string prompt;       // its head
  std::string test;         // code that defines check(function)
  std::string entry_point;  // its name
};

struct Task {
  std::string name;
  Protocol protocol = Protocol::kLmEval;
  std::string variant;  // for results, where the protocol has several; "": the usual one
  TaskKind kind = TaskKind::kMultipleChoice;

  // Files. A split is a word in the name of a file or of its folder (task_files.h).
  std::vector<std::string> splits;       // that are evaluated, the preferred one first
  std::vector<std::string> shot_splits;  // that examples are taken from
  // Every file is a subject with separate examples; with subject_field, which records need not
  // have, also a file of several.
  bool has_subjects = false;
  std::string subject_field;         // the field with the subject of a record, if it has one
  bool shots_of_subject = false;     // examples have the subject of the question there
  std::vector<std::string> columns;  // of csv files without a header
  // Makes records with the fields that the texts below name. Throws Error(kData) beginning with
  // `where`.
  std::vector<nlohmann::json> (*prepare)(nlohmann::json record, const std::string& where) = nullptr;

  // Texts with {field} (rendered() in task_records.h). Of the subject, the description has
  // {subject}, its words, and {subject_name}, its name in the files; the prompt has
  // {subject_words}.
  std::string description;
  std::string prompt;
  std::vector<std::string> choices;  // kPreference: the better answer, the worse one
  std::string choices_field;         // a list in the record, instead of `choices`
  std::string ending;  // not empty: the choices are prompts, and this is what follows them
  std::string answer;  // right choice: its index, its label or its text; otherwise the text
  // kGeneration: where `answer` is {field}, a list there has texts that are all right, the first
  // one as the answer of examples.
  std::string shot_answer;  // of examples, instead of `answer`
  std::vector<std::string> answer_labels;
  std::string answer_delimiter = " ";
  std::string shot_delimiter = "\n\n";

  std::int64_t num_shots = 0;  // unless --num-shots is given
  bool random_shots = false;   // drawn as lm-evaluation-harness does; else the first ones
  // Draw one more, and leave out one that is the question: what lm-evaluation-harness does for data
  // sets without a test split.
  bool spare_shot = false;
  // Draw them as pandas.DataFrame.sample does with TaskDataOptions::seed, the same for all
  // questions of a subject.
  bool seeded_shots = false;
  // Examples that are part of the task, instead of records of a split.
  std::vector<nlohmann::json> (*own_shots)() = nullptr;
  // Put the list `choices` of each record, which has the right one at `gold`, in an order that
  // Random(0) draws; of equal texts the first one is the right one.
  bool shuffles_choices = false;
  // `acc` is the probability of all right choices, of 1 for all choices together.
  bool scores_probability = false;
  bool asks_in_chat = false;     // a conversation whose first turn begins with the description
  std::string shot_texts;        // file of written examples by subject, instead of records
  std::string shot_texts_entry;  // the one entry of that file for all subjects

  // kGeneration
  std::int64_t max_new_tokens = 0;
  std::vector<std::string> stop;
  std::string reasoning_end;  // the answer comes after the last of these words; "": it is all
  std::vector<AnswerFilter> filters;
  // The text is searched for a needle: samples are made by needlebench.h.
  bool has_needles = false;
  // The answer has to follow instructions (answers/instructions.h), which `answer` has as JSON.
  bool has_instructions = false;
  // Applied to the found answer and to the right one before they are compared.
  std::string (*normalize)(std::string_view answer) = nullptr;
  // The answer is code, which is right if this program of Python, with the tests of the question,
  // runs to its end in `program_seconds`.
  std::string (*program)(const CodeQuestion& question, std::string_view answer) = nullptr;
  double program_seconds = 0;
  std::vector<std::int64_t> pass_at = {1};  // the k of its metrics pass@k

  std::vector<std::string> metrics;  // of task_scores.h
};

// What is asked in needlebench.
struct NeedleOptions {
  std::vector<std::int64_t> lengths;   // tokens; empty: as MindSpeed-LLM for the model's length
  std::vector<double> depths;          // percent; empty: as MindSpeed-LLM
  std::int64_t repeats = 10;           // of each length and depth
  std::optional<std::int64_t> buffer;  // tokens; absent: as MindSpeed-LLM
  std::vector<std::string> languages = {"en", "zh"};

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"needle-lengths",
             "needlebench: numbers of tokens of the texts with their needles (default: as "
             "MindSpeed-LLM for a model that reads as many tokens)",
             {.placeholder = "N"}},
      lengths);
    v(Option{"needle-depths",
             "needlebench: where needles are put, in percent of the text (default: as "
             "MindSpeed-LLM)",
             {.placeholder = "P"}},
      depths);
    v(Option{"needle-repeats",
             "needlebench: number of texts of each length and depth",
             {.placeholder = "N"}},
      repeats);
    v(Option{"needle-buffer",
             "needlebench: tokens of --needle-lengths that are left for the question (default: as "
             "MindSpeed-LLM)",
             {.placeholder = "N"}},
      buffer);
    v(Option{"needle-languages", "needlebench: en, zh or both"}, languages);
  }
};

// How a description is written in a file of a task of the user's.
struct TaskFields {
  std::string name;
  std::string kind = "multiple-choice";
  std::vector<std::string> splits = {"test", "validation", "val", "dev"};
  std::vector<std::string> shot_splits = {"train", "dev"};
  bool has_subjects = false;
  std::string subject_field;
  std::vector<std::string> columns;
  std::string description;
  std::string prompt;
  std::string chosen;
  std::string rejected;
  std::vector<std::string> choices;
  std::string choices_field;
  std::string answer;
  std::vector<std::string> answer_labels;
  std::string answer_delimiter = " ";
  std::string shot_delimiter = "\n\n";
  std::int64_t num_shots = 0;
  bool random_shots = false;
  std::int64_t max_new_tokens = 64;
  std::vector<std::string> stop;
  std::string answer_pattern;
  bool last_match = false;
  std::vector<std::string> metrics;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"name", "name of the task in results"}, name);
    v(Option{"kind",
             "multiple-choice, last-word, generation, perplexity or preference",
             {.choices = {"multiple-choice", "last-word", "generation", "perplexity",
                          "preference"}}},
      kind);
    v(Option{"splits", "splits that are evaluated, the preferred one first"}, splits);
    v(Option{"shot-splits", "splits that examples are taken from"}, shot_splits);
    v(Option{"has-subjects", "every file is a subject with separate examples"}, has_subjects);
    v(Option{"subject-field", "field with the subject of a record, if it has one"}, subject_field);
    v(Option{"columns", "columns of csv files without a header"}, columns);
    v(Option{"description", "text before the examples"}, description);
    v(Option{"prompt", "question, with {field}"}, prompt);
    v(Option{"chosen", "the better answer of kind = \"preference\", with {field}"}, chosen);
    v(Option{"rejected", "the worse answer, with {field}"}, rejected);
    v(Option{"choices", "choices, with {field}"}, choices);
    v(Option{"choices-field", "field with the list of choices"}, choices_field);
    v(Option{"answer", "right answer, with {field}"}, answer);
    v(Option{"answer-labels", "words that the answer names the choices by"}, answer_labels);
    v(Option{"answer-delimiter", "text between prompt and answer"}, answer_delimiter);
    v(Option{"shot-delimiter", "text after an example"}, shot_delimiter);
    v(Option{"num-shots", "number of examples"}, num_shots);
    v(Option{"random-shots", "draw the examples; else the first ones"}, random_shots);
    v(Option{"max-new-tokens", "largest number of tokens to generate"}, max_new_tokens);
    v(Option{"stop", "words that end the generated text"}, stop);
    v(Option{"answer-pattern", "regular expression of the answer in a generated text"},
      answer_pattern);
    v(Option{"last-match", "take the last match of answer-pattern, not the first"}, last_match);
    v(Option{"metrics", "metrics to report"}, metrics);
  }
};

}  // namespace piton
