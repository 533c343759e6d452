#include "tasks/task_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>

#include "base/error.h"
#include "base/listed.h"
#include "data/records/byte_stream.h"
#include "tasks/task_records.h"
#include "tasks/task_table.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> kSplits = {"train", "test", "validation",
                                                     "valid", "val",  "dev"};

bool is_split(std::string_view word) {
  return std::find(kSplits.begin(), kSplits.end(), word) != kSplits.end();
}

// The name without extensions, and without the part of a data set that it is: "test-00000-of-00001"
// is "test".
std::string stem_of(const fs::path& path) {
  std::string stem = fs::path(unpacked_name(path.filename().string())).stem().string();
  const std::size_t part = stem.find("-0000");
  return part == stem.npos ? stem : stem.substr(0, part);
}

std::vector<TaskFile> files_below(const fs::path& folder) {
  std::vector<TaskFile> files;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied), end;
  for (; it != end; ++it) {
    if (it.depth() > 3) it.disable_recursion_pending();
    std::error_code ignored;  // of links that lead nowhere
    if (!it->is_regular_file(ignored) || !is_task_file(it->path())) continue;
    const std::string name = it->path().filename().string();
    // AGIEval has its examples next to its questions.
    if (name.starts_with('.') || name.starts_with("few_shot")) continue;
    TaskFile file = task_file_of(it->path().lexically_relative(folder));
    file.path = it->path();
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const TaskFile& a, const TaskFile& b) {
    return std::tie(a.subject, a.path) < std::tie(b.subject, b.path);
  });
  return files;
}

// Those of the first split that there is.
std::vector<TaskFile> of_splits(const std::vector<TaskFile>& files,
                                const std::vector<std::string>& splits) {
  for (const std::string& split : splits) {
    std::vector<TaskFile> found;
    std::copy_if(files.begin(), files.end(), std::back_inserter(found),
                 [&](const TaskFile& file) { return file.split == split; });
    if (!found.empty()) return found;
  }
  return {};
}

bool is_text(const TaskFile& file) {
  const std::string extension = fs::path(unpacked_name(file.path.string())).extension().string();
  return extension == ".txt" || extension == ".raw";
}

// Notes next to questions are no questions.
void drop_texts(std::vector<TaskFile>& files, TaskKind kind) {
  const bool wants_text = kind == TaskKind::kPerplexity;
  const bool has_others =
      std::any_of(files.begin(), files.end(), [](const TaskFile& file) { return !is_text(file); });
  if (!wants_text || has_others) std::erase_if(files, is_text);
}

// The folders of MMLU on Hugging Face are its subjects and "all", which has their questions again.
void drop_all(std::vector<TaskFile>& files) {
  const auto is_all = [](const TaskFile& file) { return file.subject == "all"; };
  if (!std::all_of(files.begin(), files.end(), is_all)) std::erase_if(files, is_all);
}

// Whether `path` holds `name`, and if `whole` without a letter or digit next to it.
bool holds_name(const std::string& path, std::string_view name, bool whole) {
  const auto is_word = [&](std::size_t at) {
    return at < path.size() && std::isalnum(static_cast<unsigned char>(path[at])) != 0;
  };
  for (std::size_t at = path.find(name); at != path.npos; at = path.find(name, at + 1)) {
    if (!whole || (!is_word(at + name.size()) && (at == 0 || !is_word(at - 1)))) return true;
  }
  return false;
}

// Other built-in tasks whose folders or files are directly in `folder`; none for a user's own task,
// whose files may be called after another's.
std::vector<std::string> other_tasks_in(const fs::path& folder, std::string_view own) {
  const std::vector<Task> tasks = built_in_tasks(Protocol::kLmEval);
  std::vector<std::string> found;
  if (std::none_of(tasks.begin(), tasks.end(), [&](const Task& task) { return task.name == own; }))
    return found;
  for (const Task& task : tasks) {
    std::error_code ignored;
    const auto names_task = [&](const fs::directory_entry& entry) {
      return holds_name(stem_of(entry.path()), task.name, true) &&
             (entry.is_directory(ignored) || is_task_file(entry.path()));
    };
    const fs::directory_iterator entries(folder, fs::directory_options::skip_permission_denied);
    if (std::any_of(begin(entries), end(entries), names_task)) found.push_back(task.name);
  }
  return found;
}

}  // namespace

TaskFile task_file_of(const fs::path& relative) {
  TaskFile file{.path = relative};
  std::string stem = stem_of(relative);
  std::vector<std::string> folders;
  for (const fs::path& part : relative.parent_path()) folders.push_back(part.string());
  if (is_split(stem)) {
    file.split = stem;
    if (!folders.empty() && !is_split(folders.back())) file.subject = folders.back();
    return file;
  }
  const std::size_t mark = stem.find_last_of("_-.");
  if (mark != stem.npos && is_split(stem.substr(mark + 1))) {
    file.split = stem.substr(mark + 1);
    stem.resize(mark);
  }
  file.subject = stem;
  for (const std::string& folder : folders) {
    if (file.split.empty() && is_split(folder)) file.split = folder;
  }
  if (!file.split.empty()) return file;
  // A part of a split: "hellaswag_val_subset".
  for (const std::string_view split : kSplits) {
    for (const char before : {'_', '-'}) {
      for (const char after : {'_', '-'}) {
        if (stem.find(before + std::string(split) + after) != stem.npos) file.split = split;
      }
    }
  }
  return file;
}

fs::path task_data_path(std::string_view task, const std::vector<std::string>& given,
                        const TaskFlags& flags) {
  if (given.empty())
    throw Error(Fault::kUsage, "{}: not given; wanted the folder of {}'s questions", flags.paths,
                task);
  for (const std::string& path : given) {
    if (!fs::exists(path)) throw Error(Fault::kUsage, "{}: {} does not exist", flags.paths, path);
  }
  // A whole word first: "cmmlu" holds "mmlu".
  for (const bool whole : {true, false}) {
    for (auto it = given.rbegin(); it != given.rend(); ++it) {
      if (holds_name(fs::path(*it).lexically_normal().string(), task, whole)) return *it;
    }
  }
  for (auto it = given.rbegin(); it != given.rend(); ++it) {
    if (!fs::is_directory(*it)) continue;
    if (fs::is_directory(fs::path(*it) / task)) return fs::path(*it) / task;
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(*it)) {
      std::error_code ignored;
      if (entry.is_regular_file(ignored) && is_task_file(entry.path()) &&
          entry.path().filename().string().starts_with(task))
        files.push_back(entry.path());
    }
    if (files.size() == 1) return files.front();
  }
  if (given.size() == 1) {
    // A folder of several tasks: a file of another one would be read as this one's.
    const fs::path only = given.front();
    const std::vector<std::string> others =
        fs::is_directory(only) ? other_tasks_in(only, task) : std::vector<std::string>();
    if (others.empty()) return only;
    throw Error(Fault::kUsage,
                "{}: {} has files of {}, but none of {}; wanted a folder or file {} in it",
                flags.paths, only.string(), listed(others), task, task);
  }
  throw Error(Fault::kUsage,
              "{}: none of {} holds the name \"{}\"; wanted a folder or file for each {}, with the "
              "name of the task",
              flags.paths, listed(given), task, flags.tasks);
}

TaskFiles find_task_files(const Task& task, const fs::path& path) {
  TaskFiles files;
  const bool is_file = fs::is_regular_file(path);
  fs::path folder = is_file ? path.parent_path() : path;
  if (folder.empty()) folder = ".";
  folder = fs::absolute(folder).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();
  const std::string own_split =
      is_split(folder.filename().string()) ? folder.filename().string() : "";
  files.folder = own_split.empty() ? folder : folder.parent_path();

  std::vector<TaskFile> all = files_below(files.folder);
  drop_texts(all, task.kind);
  files.shots = of_splits(all, task.shot_splits);
  if (is_file) {
    if (!is_task_file(path)) {
      throw Error(Fault::kUsage, "{}: wanted a .jsonl, .json, .csv, .tsv, .txt or .parquet file",
                  path.string());
    }
    TaskFile one =
        task_file_of(fs::absolute(path).lexically_normal().lexically_relative(files.folder));
    one.path = path;
    files.questions = {one};
    return files;
  }
  std::vector<std::string> splits = task.splits;
  if (!own_split.empty()) splits = {own_split};
  files.questions = of_splits(all, splits);
  if (files.questions.empty() && own_split.empty()) files.questions = of_splits(all, {""});
  // In a folder that is called as a split, whatever its files are called.
  if (files.questions.empty() && !own_split.empty()) {
    std::copy_if(all.begin(), all.end(), std::back_inserter(files.questions),
                 [&](const TaskFile& file) { return file.path.parent_path() == folder; });
  }
  if (task.has_subjects) drop_all(files.questions);
  if (files.questions.empty()) {
    throw Error(Fault::kUsage,
                "{}: no file of {} in it; wanted .jsonl, .json or .csv files of a split ({}), such "
                "as {}",
                path.string(), task.name, listed(task.splits),
                task.has_subjects ? "test/SUBJECT_test.csv" : "test.jsonl");
  }
  return files;
}

}  // namespace piton
