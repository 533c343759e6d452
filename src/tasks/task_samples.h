// The samples of a task: its questions with their examples, as the texts that a model reads.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/instruct/conversation.h"
#include "tasks/task.h"

namespace piton {

// An example as two turns of a conversation.
struct ShotTurns {
  std::string question;
  std::string answer;
};

// One question. Its texts, by kind of task:
//   kMultipleChoice, kNextToken   contexts: one, or one for each choice; a continuation a choice
//   kLastWord                     one context, one continuation
//   kLastToken, kPerplexity       one context: the text
//   kGeneration                   one context
//   kPreference                   one context, the prompt, until make_preference_texts() makes a
//                                 conversation with each answer. Where the record has lists of
//                                 messages, `pair` is that conversation, and the texts here are
//                                 its last question and its two answers
struct TaskSample {
  std::string subject;     // "" if the task has none
  std::int64_t index = 0;  // of the record in its file, from 0
  std::vector<std::string> contexts;
  std::vector<std::string> continuations;
  std::vector<std::string> choices;  // continuations without the delimiter before them
  std::vector<std::int64_t> gold;    // right choices
  std::string answer;                // kGeneration: the right text; kPerplexity: the counted text
  std::vector<std::string> other_answers;  // kGeneration: texts that are right too
  std::vector<std::int64_t> shots;         // records of the examples, in their file
  // The same contexts as turns of a conversation: what comes first, questions and answers of the
  // examples, and what is asked, of each context.
  std::string system;
  std::vector<ShotTurns> shot_turns;
  std::vector<std::string> asked;
  std::optional<Conversation> pair;  // kPreference: of a record with lists of messages
  CodeQuestion code;                 // of tasks whose answers are programs
  std::string keyword;               // of tasks with needles: what a right answer has

  const std::string& context(std::size_t choice) const {
    return contexts[contexts.size() == 1 ? 0 : choice];
  }
};

struct NeedleFiles;  // needlebench.h

struct TaskData {
  Task task;
  std::int64_t num_shots = 0;
  std::vector<TaskSample> samples;  // subject after subject, in the order of the files
  std::string prompt_hash;          // of all contexts and continuations, 32 hex digits
  bool is_chat = false;             // chat_prompts.h made the contexts
  // Of Task::has_needles, whose samples a tokenizer is needed for.
  std::shared_ptr<const NeedleFiles> needles;
};

struct TaskDataOptions {
  TaskFlags flags;
  std::vector<std::string> paths;           // TaskFlags::paths
  std::optional<std::int64_t> num_shots;    // absent: the task's
  std::optional<std::int64_t> max_samples;  // of each subject; absent: all
  std::optional<double> sample_share;       // the same as a share, rounded up
  std::string few_shot_path;                // file or folder of written examples; "": by the data
  std::uint32_t seed = 1234;                // of Task::seeded_shots
  NeedleOptions needles;                    // of Task::has_needles
};

// Reads the files of the task. Samples with needles are left to make_needle_samples(). Throws
// Error(kUsage) for data and examples that are not there, Error(kData) for records that do not have
// the fields of the task, or if there is no question.
TaskData load_task(const Task& task, const TaskDataOptions& options);

// TaskData::prompt_hash of these samples.
std::string hash_of_prompts(const std::vector<TaskSample>& samples);

}  // namespace piton
