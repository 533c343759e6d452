// Options of `piton preprocess`: input, splitting, output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/records/record_scanner.h"

namespace piton {

enum class OnError {
  kFail,  // the first bad record ends the run
  kSkip,  // bad records are counted and left out
};

struct PreprocessOptions {
  std::vector<std::string> input;
  std::vector<std::string> datasets;
  std::string hf_datasets_params;
  bool streaming = true;
  std::string input_format = "auto";
  SampleBy sample_by = SampleBy::kDocument;
  std::vector<std::string> json_keys = {"text"};
  std::string map_keys;
  std::string output_prefix;
  bool overwrite = false;
  std::string dataset_impl = "mmap";
  bool append_eod = false;
  bool add_special_tokens = false;
  bool parse_special_tokens = false;
  bool split_sentences = false;
  bool keep_newlines = false;
  std::string punkt_parameters;
  bool remove_duplicates = false;
  int workers = 1;
  std::int64_t log_interval = 0;
  int partitions = 1;
  std::optional<std::int64_t> partition_index;
  std::vector<std::string> merge;
  OnError on_error = OnError::kFail;
  std::int64_t max_record_bytes = 64 << 20;

  template <typename Visitor>
  void visit(Visitor&& v) {
    v(Option{"input",
             "files, globs, folders, or - for standard input; each may be gz, zst, bz2 or xz",
             {.placeholder = "PATH"}},
      input);
    v(Option{"datasets", "more of the same, read after --input", {.placeholder = "PATH"}},
      datasets);
    v(Option{"hf-datasets-params",
             "JSON file with the arguments of load_dataset, local files only; instead of --input",
             {.placeholder = "FILE"}},
      hf_datasets_params);
    v(Option{"streaming", "read records as they come; there is no other way"}, streaming);
    v(Option{"input-format",
             "what the files hold (auto: by name and content)",
             {.choices = {"auto", "text", "jsonl", "json", "csv", "tsv", "wikiextractor",
                          "wiki-xml", "parquet"}}},
      input_format);
    v(Option{"sample-by", "what one document of a text file is: the file, a paragraph or a line"},
      Choice(sample_by, {{"line", SampleBy::kLine},
                         {"paragraph", SampleBy::kParagraph},
                         {"document", SampleBy::kDocument}}));
    v(Option{"json-keys",
             "keys or columns to read, one corpus each",
             {.aliases = {"json-key"}, .placeholder = "KEY"}},
      json_keys);
    v(Option{"map-keys",
             "JSON object from keys to their names in the files: {\"text\": \"content\"}",
             {.placeholder = "JSON"}},
      map_keys);
    v(Option{"output-prefix",
             "corpora are PREFIX_KEY_document.bin and .idx",
             {.placeholder = "PREFIX"}},
      output_prefix);
    v(Option{"overwrite", "replace corpora that are there already"}, overwrite);
    v(Option{"dataset-impl",
             "form of the corpus; the older lazy and cached are read, not written",
             {.choices = {"mmap"}}},
      dataset_impl);
    v(Option{"append-eod", "end every document with the end-of-document id"}, append_eod);
    v(Option{"add-special-tokens",
             "add what the tokenizer puts around a text (<s>, [CLS] .. [SEP])"},
      add_special_tokens);
    v(Option{"parse-special-tokens", "special tokens that stand in the text become their ids"},
      parse_special_tokens);
    v(Option{"split-sentences", "cut documents into sentences (Punkt): PREFIX_KEY_sentence"},
      split_sentences);
    v(Option{"keep-newlines", "sentences keep the line ends behind them"}, keep_newlines);
    v(Option{"punkt-parameters",
             "folder of Punkt parameters in NLTK's form (default: learned from the input)",
             {.placeholder = "DIR"}},
      punkt_parameters);
    v(Option{"remove-duplicates",
             "write a document only the first time that its exact text is met"},
      remove_duplicates);
    v(Option{"workers", "threads in all; the output does not depend on them"}, workers);
    v(Option{"log-interval", "a line in the log every N documents (0: none)"}, log_interval);
    v(Option{"partitions", "cut the list of files into so many parts, for --partition-index"},
      partitions);
    v(Option{"partition-index", "process this part alone, 0 to N-1; join the corpora with --merge"},
      partition_index);
    v(Option{"merge",
             "join these corpora into --output-prefix; instead of --input",
             {.placeholder = "PREFIX"}},
      merge);
    v(Option{"on-error", "what a record that cannot be used does"},
      Choice(on_error, {{"fail", OnError::kFail}, {"skip", OnError::kSkip}}));
    v(Option{"max-record-bytes", "longer records count as bad"}, max_record_bytes);
  }
};

}  // namespace piton
