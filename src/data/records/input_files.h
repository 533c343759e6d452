// Finds the input files of a corpus and their formats.
//
//   format           by name                 by content
//   text             .txt
//   jsonl            .jsonl, .ndjson         "{", the first line whole
//   json             .json                   "[", or "{" over several lines
//   csv, tsv         .csv, .tsv
//   wikiextractor                            "<doc id="
//   wiki-xml         .xml                    "<mediawiki"
//   parquet          .parquet                "PAR1"
//
// Each may be packed (byte_stream.h). The content overrides .txt, .json and .xml, and decides for
// names without a known extension (wiki_00).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "data/records/data_set_folder.h"

namespace piton {

enum class InputFormat { kText, kJsonLines, kJson, kCsv, kTsv, kWikiExtractor, kWikiXml, kParquet };

// "text", "jsonl", ...: the words of --input-format.
std::string_view name(InputFormat format);
std::optional<InputFormat> input_format(std::string_view name);

struct InputFile {
  std::string path;                        // "-" is standard input
  std::int64_t bytes = 0;                  // as stored on the disk; 0 for standard input
  std::optional<InputFormat> format = {};  // given by the user; absent: detect_format() at opening
};

// Expands files, globs and folders: of these the files with a known extension or none that are the
// chosen split of the data set (data_set_folder.h), which the log names if there are several.
// Throws Error(kUsage) for names that do not exist or match nothing, for a split that is not there,
// and for a folder with several formats, with their counts.
std::vector<InputFile> find_input_files(const std::vector<std::string>& inputs,
                                        std::optional<InputFormat> format,
                                        const DataSetChoice& choice, Log& log);
std::vector<InputFile> find_input_files(const std::vector<std::string>& inputs,
                                        std::optional<InputFormat> format);

// Detects the format by the name and the first bytes (unpacked; up to 1 MB). Throws Error(kData) if
// neither tells.
InputFormat detect_format(const std::string& path, std::string_view head);

// The inputs in a description of a data set.
struct HfInputs {
  std::string path;                // as written there
  std::vector<std::string> files;  // files and folders
  DataSetChoice data_set;          // of such a folder
};
// Reads a JSON file with arguments of `datasets.load_dataset` that name local data: {"path":
// "json", "data_files": [...]}, {"path": FOLDER, "name": CONFIGURATION, "split": SPLIT}. "name" is
// one of the folder's README.md, or a folder in it or in its folder data; "data_dir" is a
// subfolder; "streaming" is always on. Throws Error(kUsage) with line and column for text that is
// not JSON, and for keys that do not apply to local files.
HfInputs inputs_of_hf_params(const std::string& file);

}  // namespace piton
