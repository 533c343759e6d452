#include "data/records/data_set_folder.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "data/records/front_matter.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// Files of each split; a vector, in the order in which README.md names them.
using Splits = std::vector<std::pair<std::string, std::vector<std::string>>>;

constexpr std::size_t kMostBraces = 1000;  // alternatives of one pattern

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// --- Patterns
// --------------------------------------------------------------------------------------

// {a,b}c as ac and bc.
std::vector<std::string> alternatives(std::string_view pattern) {
  std::vector<std::string> done;
  std::vector<std::string> open{std::string(pattern)};
  while (!open.empty() && done.size() + open.size() < kMostBraces) {
    const std::string one = std::move(open.back());
    open.pop_back();
    const auto start = one.find('{');
    const auto end = start == std::string::npos ? start : one.find('}', start);
    if (end == std::string::npos) {
      done.push_back(one);
      continue;
    }
    for (std::size_t at = start + 1; at <= end;) {
      const std::size_t comma = std::min(one.find(',', at), end);
      open.push_back(one.substr(0, start) + one.substr(at, comma - at) + one.substr(end + 1));
      at = comma + 1;
    }
  }
  return done;
}

// The length of [...] at the front of `pattern` and whether it names `c`; 0 if it does not end.
std::pair<std::size_t, bool> bracket(std::string_view pattern, char c) {
  const bool negated = pattern.size() > 1 && (pattern[1] == '!' || pattern[1] == '^');
  std::size_t i = negated ? 2 : 1;
  bool named = false;
  for (const std::size_t first = i; i < pattern.size(); ++i) {
    if (pattern[i] == ']' && i > first) return {i + 1, named != negated};
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      named = named || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 2;
    } else {
      named = named || pattern[i] == c;
    }
  }
  return {0, false};
}

// Row by row: reach[j] says whether the pattern so far matches the first j bytes of `path`.
bool matches_one(std::string_view pattern, std::string_view path) {
  std::vector<char> reach(path.size() + 1, 0);
  reach[0] = 1;
  while (!pattern.empty()) {
    std::vector<char> next(path.size() + 1, 0);
    std::size_t length = 1;
    if (pattern.front() == '*') {
      const bool across = pattern.starts_with("**");
      length = across ? 2 : 1;
      // "**/" is also no folder at all.
      const bool whole_folders = pattern.starts_with("**/");
      if (whole_folders) length = 3;
      bool on = false;
      for (std::size_t j = 0; j <= path.size(); ++j) {
        if (!across && j > 0 && path[j - 1] == '/') on = false;
        on = on || reach[j] != 0;
        const bool at_folder = j == 0 || path[j - 1] == '/' || reach[j] != 0;
        next[j] = static_cast<char>(on && (!whole_folders || at_folder));
      }
    } else {
      for (std::size_t j = 0; j < path.size(); ++j) {
        bool same = pattern.front() == path[j];
        if (pattern.front() == '?') same = path[j] != '/';
        if (pattern.front() == '[') {
          const auto [size, named] = bracket(pattern, path[j]);
          if (size > 0) {
            length = size;
            same = named;
          }
        }
        next[j + 1] = static_cast<char>(reach[j] != 0 && same);
      }
    }
    pattern.remove_prefix(length);
    reach = std::move(next);
  }
  return reach.back() != 0;
}

// --- README.md
// -------------------------------------------------------------------------------------

// "configs" of README.md, checked: a list of maps.
class Configs {
 public:
  Configs(nlohmann::json value, std::string where)
      : value_(std::move(value)), where_(std::move(where)) {
    bool good = value_.is_array() && !value_.empty();
    for (const auto& config : value_) good = good && config.is_object();
    if (!good) throw refusal("\"configs\" is not a list of maps");
  }

  const nlohmann::json& find(const std::string& name) const {
    const nlohmann::json* found = nullptr;
    for (const auto& config : value_) {
      const bool is_default = text_of(config, "default") == "true" || name_of(config) == "default";
      if (name.empty() ? is_default || value_.size() == 1 : name_of(config) == name) {
        found = &config;
        if (!name.empty() || text_of(config, "default") == "true") break;
      }
    }
    if (found == nullptr) {
      throw Error(Fault::kUsage, "--dataset-config: {} has {}; got {}", where_, listed(names()),
                  name.empty() ? "none, and none of these is the default" : "\"" + name + "\"");
    }
    return *found;
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& config : value_) names.push_back(name_of(config));
    return names;
  }

  static std::string name_of(const nlohmann::json& config) {
    const std::string name = text_of(config, "config_name");
    return name.empty() ? "default" : name;
  }

  // Keeps what is below data_dir.
  static void keep_below(const nlohmann::json& config, std::vector<std::string>& files) {
    const std::string below = text_of(config, "data_dir");
    if (below.empty()) return;
    const std::string start = (fs::path(below) / "").lexically_normal().generic_string();
    std::erase_if(files, [&](const std::string& file) { return !file.starts_with(start); });
  }

  // Patterns of each split, below the folder; none if the names of the files tell them.
  Splits patterns(const nlohmann::json& config) const {
    const std::string below = text_of(config, "data_dir");
    const auto files = config.find("data_files");
    if (files == config.end()) return {};
    Splits splits;
    const auto add = [&](const std::string& split, const nlohmann::json& path) {
      if (!path.is_string() || path.get<std::string>().empty()) {
        throw refusal("a path of \"data_files\" is not text");
      }
      std::string pattern = fs::path(path.get<std::string>()).lexically_normal().generic_string();
      if (!below.empty()) pattern = (fs::path(below) / pattern).lexically_normal().generic_string();
      auto at = std::find_if(splits.begin(), splits.end(),
                             [&](const auto& one) { return one.first == split; });
      if (at == splits.end()) at = splits.insert(at, {split, {}});
      at->second.push_back(pattern);
    };
    const auto add_all = [&](const std::string& split, const nlohmann::json& paths) {
      if (!paths.is_array()) return add(split, paths);
      for (const auto& path : paths) add(split, path);
    };
    if (!files->is_array()) {
      add("train", *files);
      return splits;
    }
    for (const auto& one : *files) {
      if (!one.is_object()) {
        add("train", one);
      } else if (const std::string split = text_of(one, "split");
                 !split.empty() && one.contains("path")) {
        add_all(split, one["path"]);
      } else {
        throw refusal("an entry of \"data_files\" has not both split and path");
      }
    }
    return splits;
  }

 private:
  static std::string text_of(const nlohmann::json& map, const char* key) {
    const auto at = map.find(key);
    return at != map.end() && at->is_string() ? at->get<std::string>() : std::string();
  }
  Error refusal(std::string_view what) const {
    return Error(Fault::kData,
                 "{}: {}; see https://huggingface.co/docs/hub/datasets-manual-configuration, or "
                 "name the files themselves with --input",
                 where_, what);
  }

  nlohmann::json value_;
  std::string where_;
};

// --- Names
// -----------------------------------------------------------------------------------------

struct SplitWords {
  std::string_view split;
  std::vector<std::string_view> words;
};
const std::array<SplitWords, 3>& split_words() {
  static const std::array<SplitWords, 3> kWords{
      {{"train", {"train", "training"}},
       {"validation", {"validation", "valid", "dev", "val"}},
       {"test", {"test", "testing", "eval", "evaluation"}}}};
  return kWords;
}

// Whether `word` is in `name` between separators or ends.
bool has_word(std::string_view name, std::string_view word) {
  constexpr std::string_view kSeparators = "-._ 0123456789";
  for (std::size_t at = 0; (at = name.find(word, at)) != std::string_view::npos; ++at) {
    const std::size_t end = at + word.size();
    if ((at == 0 || kSeparators.find(name[at - 1]) != std::string_view::npos) &&
        (end == name.size() || kSeparators.find(name[end]) != std::string_view::npos)) {
      return true;
    }
  }
  return false;
}

// NAME of data/NAME-00000-of-00002*.*, or nothing.
std::string name_of_shards(const std::string& path) {
  constexpr std::string_view kShards = "-[0-9][0-9][0-9][0-9][0-9]-of-[0-9][0-9][0-9][0-9][0-9]*.*";
  if (!path.starts_with("data/")) return {};
  const std::string name = path.substr(5);
  for (std::size_t at = name.find('-'); at != std::string::npos; at = name.find('-', at + 1)) {
    if (matches_one(kShards, std::string_view(name).substr(at))) return name.substr(0, at);
  }
  return {};
}

Splits splits_by_name(const std::vector<std::string>& files) {
  std::map<std::string, std::vector<std::string>> shards, folders, names;
  for (const std::string& file : files) {
    const std::string shard = name_of_shards(file);
    if (!shard.empty()) shards[shard].push_back(file);
    for (const auto& [split, words] : split_words()) {
      const fs::path path(file);
      bool folder = false, name = false;
      for (const std::string_view word : words) {
        for (const fs::path& part : path.parent_path()) {
          folder = folder || has_word(part.string(), word);
        }
        name = name || has_word(path.filename().string(), word);
      }
      if (folder) folders[std::string(split)].push_back(file);
      if (name) names[std::string(split)].push_back(file);
    }
  }
  const auto& found = !shards.empty() ? shards : !folders.empty() ? folders : names;
  return {found.begin(), found.end()};
}

// The split to read. Throws Error(kUsage) if it is not there.
const std::pair<std::string, std::vector<std::string>>& chosen(const Splits& splits,
                                                               const std::string& name,
                                                               const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& split : splits) {
    names.push_back(split.first);
    if (split.first == (name.empty() ? "train" : name)) return split;
  }
  if (splits.size() == 1 && name.empty()) return splits.front();
  throw Error(Fault::kUsage, "--dataset-split: {} has {}; got {}", folder.string(),
              names.empty() ? "no names that tell a split" : listed(names),
              name.empty() ? "none, and there is no train" : "\"" + name + "\"");
}

// What is read of a folder, and what else it has.
struct FolderChoice {
  const std::string& config;
  const std::vector<std::string>& configs;
  const std::string& split;
  const Splits& splits;
};

std::string note_of(const fs::path& folder, const FolderChoice& choice, std::size_t files) {
  const auto& [config, configs, split, splits] = choice;
  std::vector<std::string> others;
  for (const auto& one : splits) {
    if (one.first != split) others.push_back(one.first);
  }
  std::vector<std::string> other_configs;
  for (const std::string& one : configs) {
    if (one != config) other_configs.push_back(one);
  }
  std::string note =
      fmt::format("{}: {}split {}, {} file{}", folder.string(), config.empty() ? "" : config + ", ",
                  split, files, files == 1 ? "" : "s");
  if (!others.empty()) note += fmt::format("; --dataset-split has also {}", listed(others));
  if (!other_configs.empty()) {
    note += fmt::format("; --dataset-config has also {}", listed(other_configs));
  }
  return note;
}

std::vector<std::string> files_of_patterns(const fs::path& folder,
                                           const std::vector<std::string>& patterns,
                                           const std::vector<std::string>& files) {
  std::vector<std::string> found;
  std::set<std::string> has;
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (const std::string& file : files) {
      if (!matches_pattern(pattern, file)) continue;
      any = true;
      if (has.insert(file).second) found.push_back(file);
    }
    if (!any) {
      throw Error(Fault::kUsage,
                  "{}: README.md names \"{}\", and there is no such data file; was the data set "
                  "downloaded whole?",
                  folder.string(), pattern);
    }
  }
  return found;
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view path) {
  const std::vector<std::string> all = alternatives(pattern);
  return std::any_of(all.begin(), all.end(),
                     [&](const std::string& one) { return matches_one(one, path); });
}

bool has_configuration(const fs::path& folder, const std::string& name) {
  const fs::path readme = folder / "README.md";
  std::error_code ignored;
  if (!fs::is_regular_file(readme, ignored)) return false;
  const auto value =
      front_matter_value(read_text_file(readme.string(), 16 << 20), "configs", readme.string());
  if (!value) return false;
  const std::vector<std::string> names = Configs(*value, readme.string()).names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

ChosenFiles choose_files(const fs::path& folder, std::vector<std::string> files,
                         const DataSetChoice& choice) {
  std::sort(files.begin(), files.end());
  const fs::path readme = folder / "README.md";
  std::string config_name;
  std::vector<std::string> config_names;
  std::error_code ignored;
  if (fs::is_regular_file(readme, ignored)) {
    const auto value =
        front_matter_value(read_text_file(readme.string(), 16 << 20), "configs", readme.string());
    if (value) {
      const Configs configs(*value, readme.string());
      const nlohmann::json& config = configs.find(choice.config);
      config_name = Configs::name_of(config);
      config_names = configs.names();
      if (const Splits splits = configs.patterns(config); !splits.empty()) {
        const auto& [split, patterns] = chosen(splits, choice.split, folder);
        std::vector<std::string> found = files_of_patterns(folder, patterns, files);
        std::string note =
            note_of(folder, {config_name, config_names, split, splits}, found.size());
        return {std::move(found), std::move(note)};
      }
      Configs::keep_below(config, files);
    }
  }
  if (!choice.config.empty() && config_name.empty()) {
    throw Error(Fault::kUsage, "--dataset-config: got \"{}\", but {} names no files of it",
                choice.config, readme.string());
  }
  const Splits splits = splits_by_name(files);
  if (choice.split.empty() && splits.size() < 2) return {std::move(files), {}};
  const auto& [split, found] = chosen(splits, choice.split, folder);
  return {found, note_of(folder, {config_name, config_names, split, splits}, found.size())};
}

}  // namespace piton
