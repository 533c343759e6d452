// Written examples: files with the text before the questions of each subject.
//
//   NAME.json     an object of texts by subject; or of lists of three texts: before the question,
//                 between question and choices, after the choices (AGIEval of MindSpeed-LLM)
//   SUBJECT.txt   the text after a line of dashes (cot-prompts of BIG-Bench Hard)
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "tasks/task.h"

namespace piton {

class ShotTexts {
 public:
  // `given`: TaskFlags::few_shot_path, "" if not given; then files are searched in `data`, in its
  // parent, and in folders "fewshot" of both.
  ShotTexts(const Task& task, std::filesystem::path data, std::string given,
            const TaskFlags& flags);

  // One text, or three. `questions`: the folder of the subject's questions. Throws Error(kUsage) if
  // there is no file, naming it, and Error(kData) if it has no text of the subject.
  std::vector<std::string> of(const std::string& subject, const std::filesystem::path& questions);

 private:
  std::filesystem::path find(const std::string& file, const std::filesystem::path& questions) const;

  const Task& task_;
  std::filesystem::path data_;
  std::string given_;
  TaskFlags flags_;
  std::map<std::string, nlohmann::json> files_;
};

}  // namespace piton
