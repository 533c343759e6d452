// Options of `piton preprocess`: input, splitting, output.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options/options.h"
#include "data/instruct/handlers.h"
#include "data/instruct/instruct_options.h"
#include "data/records/record_options.h"
#include "text/chat/chat_template_files.h"

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
  int n_subs = 1;
  std::int64_t log_interval = 0;
  int partitions = 1;
  std::optional<std::int64_t> partition_index;
  std::vector<std::string> merge;
  std::vector<std::string> merge_group_keys;
  InstructOptions instruct;

  // Not options: filled in by the command and by preprocess().
  ModelChatTemplates chat_templates;        // of the model
  std::optional<SampleForm> wanted_form;    // of instruction data; unset: any
  std::vector<std::string> sample_columns;  // of instruction data: "input_ids", ...

  template <typename Visitor>
  void visit(Visitor&& v) {
    RecordOptions::visit(v);
    v(Option{"output-prefix",
             "prefix of the corpora: PREFIX_KEY_document.bin and .idx",
             {.placeholder = "PREFIX"}},
      output_prefix);
    v(Option{"overwrite", "replace existing corpora"}, overwrite);
    v(Option{"dataset-impl",
             "format of the corpora; the older lazy and cached can be read, but not written",
             {.choices = {"mmap"}}},
      dataset_impl);
    v(Option{"append-eod", "append the end-of-document id to every document"}, append_eod);
    v(Option{"add-special-tokens",
             "add the tokens that the tokenizer puts around a text (<s>, [CLS] ... [SEP]); by "
             "default "
             "none, as Megatron",
             {.aliases = {"tokenizer-hf-include-special-tokens"},
              .negation = "no-add-special-tokens"}},
      add_special_tokens);
    v(Option{"parse-special-tokens", "convert special tokens in the text to their ids"},
      parse_special_tokens);
    v(Option{"split-sentences",
             "split documents into sentences (Punkt); corpora are PREFIX_KEY_sentence"},
      split_sentences);
    v(Option{"keep-newlines", "keep the line ends after each sentence"}, keep_newlines);
    v(Option{"punkt-parameters",
             "folder of Punkt parameters in NLTK's format (default: learned from the input)",
             {.placeholder = "DIR"}},
      punkt_parameters);
    v(Option{"remove-duplicates",
             "write a document only the first time that its exact text occurs"},
      remove_duplicates);
    v(Option{"workers", "number of threads; the output does not depend on it"}, workers);
    v(Option{"n-subs", "MindSpeed-LLM's number of parts processed at once: raises --workers to it"},
      n_subs);
    v(Option{"log-interval", "number of documents between log lines (0: none)"}, log_interval);
    v(Option{"partitions",
             "number of parts that the input files are divided into, for --partition-index"},
      partitions);
    v(Option{"partition-index",
             "index of the part to process, from 0; afterwards join the corpora with --merge"},
      partition_index);
    v(Option{"merge",
             "corpora to join into --output-prefix; instead of --input",
             {.placeholder = "PREFIX"}},
      merge);
    v(Option{"merge-group-keys",
             "join, for each key, the corpora in the folder --input whose names have it, in the "
             "order "
             "of their names, to PREFIX_KEY",
             {.placeholder = "KEY"}},
      merge_group_keys);
    instruct.visit(v);
  }
};

}  // namespace piton
