// Options of `piton preprocess`: input, splitting, output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "data/records/record_options.h"

namespace piton {

struct PreprocessOptions : RecordOptions {
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

  template <typename Visitor>
  void visit(Visitor&& v) {
    RecordOptions::visit(v);
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
  }
};

}  // namespace piton
