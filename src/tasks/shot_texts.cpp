#include "tasks/shot_texts.h"

#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/nesting.h"
#include "tasks/answers/python_text.h"

namespace piton {

namespace fs = std::filesystem;

ShotTexts::ShotTexts(const Task& task, fs::path data, std::string given, const TaskFlags& flags)
    : task_(task), data_(std::move(data)), given_(std::move(given)), flags_(flags) {}

fs::path ShotTexts::find(const std::string& file, const fs::path& questions) const {
  std::vector<fs::path> places;
  if (!given_.empty()) {
    if (fs::is_regular_file(given_)) return given_;
    places = {given_};
  } else {
    const fs::path parent = data_.parent_path();
    places = {questions,
              data_,
              data_ / "fewshot",
              data_ / "cot-prompts",
              parent,
              parent / "fewshot",
              parent / "cot-prompts"};
  }
  for (const fs::path& place : places) {
    if (fs::is_regular_file(place / file)) return place / file;
  }
  const std::string_view flag = flags_.few_shot_path.empty() ? flags_.paths : flags_.few_shot_path;
  throw Error(Fault::kUsage,
              "{}: {} is not in {}; wanted the file of examples of {} ({} protocol){}", flag, file,
              given_.empty() ? data_.string() : given_, task_.name, name(task_.protocol),
              flags_.or_no_shots());
}

std::vector<std::string> ShotTexts::of(const std::string& subject, const fs::path& questions) {
  std::string file = task_.shot_texts;
  if (file == "{subject}.txt") {
    file = subject + ".txt";
    const std::string text = read_text_file(find(file, questions));
    const std::size_t line = text.find("-----\n");
    return {std::string(python_right_stripped(line == text.npos ? text : text.substr(line + 6)))};
  }
  const fs::path path = find(file, questions);
  if (!files_.contains(file)) {
    const std::string text = read_text_file(path);
    check_json_depth(text, path.string());
    files_[file] = read_json_or_discarded<nlohmann::json>(text);
  }
  const nlohmann::json& json = files_[file];
  const std::string entry = task_.shot_texts_entry.empty() ? subject : task_.shot_texts_entry;
  if (!json.is_object() || !json.contains(entry))
    throw Error(Fault::kData, "{}: has no examples of \"{}\"", path.string(), entry);
  const nlohmann::json& value = json[entry];
  std::vector<std::string> texts;
  if (value.is_string()) {
    texts = {std::string(python_right_stripped(value.get<std::string>()))};
  } else if (value.is_array() && value.size() == 3) {
    for (const auto& one : value) {
      if (one.is_string()) texts.push_back(one.get<std::string>());
    }
  }
  if (texts.size() != 1 && texts.size() != 3)
    throw Error(Fault::kData, "{}: \"{}\": wanted a text, or a list of three", path.string(),
                entry);
  return texts;
}

}  // namespace piton
