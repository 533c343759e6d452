// Which records a command reads: the files, what is in them, and what happens to bad ones.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/options/options.h"
#include "data/records/block_reader.h"
#include "data/records/input_files.h"
#include "data/records/record_scanner.h"

namespace piton {

enum class OnError {
  kFail,  // the first bad record ends the run
  kSkip,  // bad records are counted and left out
};

struct RecordOptions {
  std::vector<std::string> input;
  std::vector<std::string> datasets;
  DataSetChoice data_set;
  std::string hf_datasets_params;
  bool streaming = true;
  std::string input_format = "auto";
  SampleBy sample_by = SampleBy::kDocument;
  std::vector<std::string> json_keys = {"text"};
  std::string map_keys;
  OnError on_error = OnError::kFail;
  // How bad records are left out, for messages; "" where they are not.
  std::string skip_option = "--on-error skip";
  std::int64_t max_record_bytes = 64 << 20;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"input",
             "files, globs, folders, or - for standard input; files may be compressed (gz, zst, "
             "bz2, xz). A folder may be a downloaded data set: its README.md, or the names of its "
             "files, tell the splits",
             {.placeholder = "PATH"}},
      input);
    v(Option{"datasets", "more input, read after --input", {.placeholder = "PATH"}}, datasets);
    v(
        Option{
            "dataset-config",
            "configuration of a data set's folder, as its README.md names it (absent: its default)",
            {.placeholder = "NAME"}},
        data_set.config);
    v(Option{"dataset-split",
             "split of a data set's folder: train, validation, test, or another that it has "
             "(absent: "
             "train if there are several)",
             {.placeholder = "NAME"}},
      data_set.split);
    v(Option{"hf-datasets-params",
             "JSON file with arguments of Hugging Face's load_dataset (path, name, split, "
             "data_files), for local files; replaces --input",
             {.placeholder = "FILE"}},
      hf_datasets_params);
    v(Option{"streaming", "read records as a stream; always on"}, streaming);
    v(Option{"input-format",
             "format of the input files (auto: by name and content)",
             {.choices = {"auto", "text", "jsonl", "json", "csv", "tsv", "wikiextractor",
                          "wiki-xml", "parquet"}}},
      input_format);
    v(Option{"sample-by",
             "what becomes one document in a text file: a line, a paragraph, or the whole file "
             "(document)"},
      Choice(sample_by, {{"line", SampleBy::kLine},
                         {"paragraph", SampleBy::kParagraph},
                         {"document", SampleBy::kDocument}}));
    v(Option{"json-keys",
             "keys or columns to read (preprocess: one corpus for each)",
             {.aliases = {"json-key"}, .placeholder = "KEY"}},
      json_keys);
    v(Option{"map-keys",
             "JSON object that maps keys to their names in the files: {\"text\": \"content\"}; of "
             "instruction data {\"prompt\": \"question\"}",
             {.placeholder = "JSON"}},
      map_keys);
    v(Option{"on-error", "what to do with a record that cannot be used"},
      Choice(on_error, {{"fail", OnError::kFail}, {"skip", OnError::kSkip}}));
    v(Option{"max-record-bytes", "largest record in bytes; --on-error applies to larger ones"},
      max_record_bytes);
  }
};

// Throws Error(kUsage) for options that do not fit.
void check_record_options(const RecordOptions& options);

// The names in the files of --json-keys. Throws Error(kUsage) for a --map-keys that is none.
std::vector<std::string> names_in_files(const RecordOptions& options);

// The files in the order in which they are read; the log says what was chosen of a data set's
// folder. Throws Error(kUsage) for what does not exist.
std::vector<InputFile> files_of(const RecordOptions& options, Log& log);

// The data set of each of these files, from 0: each --input and each of --datasets is one. Throws
// as files_of().
std::vector<std::size_t> sets_of_files(const RecordOptions& options);

// Throws Error(kData) that names a record which cannot be used.
[[noreturn]] void refuse_bad_record(const BadRecord& bad, const RecordOptions& options);

}  // namespace piton
