// From raw files to a tokenizer: the files that `piton preprocess` reads, their words counted, a
// vocabulary learned from the counts.
//
// The corpus streams by; what is held is the counts (a table of different words for each thread
// while it reads), and then what training makes of them. The result depends on the input and the
// options alone, not on the number of threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "base/threads.h"
#include "data/records/record_options.h"
#include "text/training/training_options.h"

namespace piton {

struct LearnOptions : RecordOptions {
  std::string save;
  bool overwrite = false;

  template <typename Visitor>
  void visit(Visitor&& v) {
    RecordOptions::visit(v);
    v(Option{"save",
             "folder for tokenizer.json and tokenizer_config.json",
             {.aliases = {"output"}, .placeholder = "DIR"}},
      save);
    v(Option{"overwrite", "replace an existing tokenizer"}, overwrite);
  }
};

struct LearnReport {
  std::string file;         // tokenizer.json
  std::int64_t pieces = 0;  // special tokens included
  std::int64_t merges = 0;  // 0 for unigram and wordpiece
  std::int64_t documents = 0;
  std::int64_t text_bytes = 0;
  std::int64_t words = 0;            // different ones
  std::int64_t bad_records = 0;      // left out
  std::vector<BadRecord> first_bad;  // at most five
  double counting_seconds = 0;
  double learning_seconds = 0;
};

// Writes the two files, or none. Throws Error(kUsage) for options that do not fit and for a
// tokenizer that is there already without --overwrite; Error(kData) for inputs that cannot be used,
// and for an input without any word.
LearnReport learn_tokenizer(const LearnOptions& options, const TokenizerTrainingOptions& training,
                            ThreadPool& threads, Log& log, Progress& progress);

}  // namespace piton
