// Which files a corpus is made of, and what is in them.
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
// each also packed (byte_stream.h). Content wins over .txt, .json and .xml, and decides for names
// without a known ending (wiki_00).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

// Expands files, globs and folders (all their files with a known ending, and those without any, in
// the order of their names). Throws Error(kUsage) for what does not exist or matches nothing, and
// for a folder that holds several formats, with their counts.
std::vector<InputFile> find_input_files(const std::vector<std::string>& inputs,
                                        std::optional<InputFormat> format);

// From the name and the first bytes (unpacked; up to 1 MB). Throws Error(kData) if neither tells.
InputFormat detect_format(const std::string& path, std::string_view head);

// What a description of a data set names.
struct HfInputs {
  std::string path;                // as written there
  std::vector<std::string> files;  // files and folders
};
// One file (or folder, or URL-less data set description) that `datasets.load_dataset` would take:
// {"path": "json", "data_files": [...]}, {"path": FOLDER}; "name" is a subfolder, "split" must be
// "train" or absent, "streaming" is always so here. Throws Error(kUsage) with line and column for
// text that is not JSON, and for keys that local files cannot honor.
HfInputs inputs_of_hf_params(const std::string& file);

}  // namespace piton
