// The files of a task in a folder: which split and which subject each of them holds.
//
// The last part of a name, or the folder that a file is in, may be the name of a split: train,
// test, validation, valid, val, dev. The rest of the name is the subject:
//
//   test/anatomy_test.csv        anatomy, test
//   val/law_val.csv              law, val
//   cmmlu/dev/anatomy.csv        anatomy, dev
//   gsm8k/test.jsonl             no subject, test
//   anatomy/test-00000-of-00001.jsonl   anatomy, test
//   boolq_dev.jsonl              boolq, dev
//   agieval/sat-math.jsonl       sat-math, no split
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/task.h"

namespace piton {

struct TaskFile {
  std::filesystem::path path;
  std::string split;    // "" if the name has none
  std::string subject;  // "" if the name is that of a split alone
};

// Split and subject by the path, relative to the folder of the data.
TaskFile task_file_of(const std::filesystem::path& relative);

// The file or folder of a task among those given: the last one whose path holds the task's name; in
// a folder that holds a folder or file with the task's name, that one; otherwise the only one.
// Throws Error(kUsage) if there is none, and for a folder that names other built-in tasks alone.
std::filesystem::path task_data_path(std::string_view task, const std::vector<std::string>& given,
                                     const TaskFlags& flags = {});

struct TaskFiles {
  std::vector<TaskFile> questions;  // of the first of the task's splits that exists, by subject
  std::vector<TaskFile> shots;      // of the splits with examples; empty if there are none
  std::filesystem::path folder;
};
// `path`: task_data_path(). A path that is called as a split (".../mmlu/test") is evaluated, also
// where its files are called as another one, and the examples are searched next to it. Throws
// Error(kUsage) for a folder without files of the task, naming what was looked for.
TaskFiles find_task_files(const Task& task, const std::filesystem::path& path);

}  // namespace piton
