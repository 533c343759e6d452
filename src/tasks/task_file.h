// A task of the user's, from a TOML file with the fields of TaskFields (task.h):
//
//   name = "colors"
//   prompt = "Question: {question}\nAnswer:"
//   choices = ["{a}", "{b}"]
//   answer = "{right}"
//   answer-labels = ["a", "b"]
#pragma once

#include <filesystem>

#include "tasks/task.h"

namespace piton {

// Throws Error(kUsage) naming the file for unknown keys, fields that are missing, and values that
// do not go together.
Task read_task_file(const std::filesystem::path& file, Protocol protocol);

}  // namespace piton
