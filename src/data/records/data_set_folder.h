// Which files of a folder are the data set, as Hugging Face's `datasets` chooses them.
//
// The README.md of a downloaded data set may name its configurations, and the files of each split:
//
//   configs:
//   - config_name: en
//     default: true             or named "default", or the only one
//     data_files:               a pattern, a list of patterns (of the split train), or a list of
//     - split: train
//       path: en/train-*        a pattern or a list of them, below the folder (and data_dir)
//
// Without it the names of the files tell their splits: data/NAME-00000-of-00002.parquet; else a
// folder that is called train, validation, test or the like; else a file that is. A folder without
// such names is one split, all of its files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace piton {

struct DataSetChoice {
  std::string config;  // empty: the one that is the default
  std::string split;   // empty: train if there are several
};

struct ChosenFiles {
  std::vector<std::string> files;  // relative to the folder, each once, sorted within a pattern
  std::string note;                // what was chosen, and what else there is; empty: no choice
};

// `files`: what may be data below `folder`, relative to it. Throws Error(kUsage) for a
// configuration or a split that is not there and for patterns without files, Error(kData) for a
// README.md that cannot be understood.
ChosenFiles choose_files(const std::filesystem::path& folder, std::vector<std::string> files,
                         const DataSetChoice& choice);

// Whether the README.md in `folder` names this configuration. Throws Error(kData) as above.
bool has_configuration(const std::filesystem::path& folder, const std::string& name);

// Whether a pattern of such a README.md names `path`: * and ? within a folder, ** across folders,
// [a-c], {a,b}.
bool matches_pattern(std::string_view pattern, std::string_view path);

}  // namespace piton
