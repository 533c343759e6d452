// From raw files to token files.
//
//   one worker at a time    cuts the files, unpacked, into blocks of whole records
//   all workers             parse records, split sentences, tokenize
//   one worker at a time    drops duplicates and writes, in the order of the input
//
// A worker cuts a block and then tokenizes it, so that its bytes are still near the core.
// The output depends on input and options alone: not on the number of workers, and not on how often
// the run was killed and started again. Blocks in flight are bounded in bytes, so memory does not
// grow with the input (a table of duplicates and one long record apart).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/progress.h"
#include "data/preprocess/corpus_writer.h"
#include "data/preprocess/preprocess_options.h"
#include "data/records/block_reader.h"
#include "text/tokenizer.h"

namespace piton {

struct PreprocessReport {
  std::vector<std::string> prefixes;  // of the corpora, one for each key
  std::vector<std::int64_t> tokens;   // of each
  std::int64_t documents = 0;         // written
  std::int64_t duplicates = 0;        // left out
  std::int64_t bad_records = 0;       // left out
  std::vector<BadRecord> first_bad;   // at most five
  std::int64_t text_bytes = 0;        // of the texts read, this run and those before it
  double seconds = 0;                 // of this run
  bool resumed = false;
};

// Runs to the end. A run that was killed, or that threw after hours, left partial files and a
// journal beside the output; the same command goes on from there, also where the inputs that were
// not read to their end have been replaced or left out. Another one starts afresh. Removed is only
// what the journal lists. Throws Error(kUsage) for options that do not fit, for corpora that are
// there already without --overwrite, and while another process writes to the prefix; Error(kData)
// for inputs that cannot be used: under OnError::kFail the first bad record, with file, line and
// byte.
PreprocessReport preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer, Log& log,
                            Progress& progress, CheckpointRule checkpoint = {});

// --merge: the corpora one after another; documents keep their order.
PreprocessReport merge_corpora(const std::vector<std::string>& prefixes,
                               const std::string& output_prefix, bool overwrite = false);

}  // namespace piton
