// Preprocessing: from raw files to token files.
//
//   one worker at a time    cuts the unpacked files into blocks of whole records
//   all workers             parse records, split sentences, tokenize
//   one worker at a time    drops duplicates and writes, in the order of the input
//
// A worker cuts a block and then tokenizes it, while its bytes are in the cache. The output depends
// only on input and options, not on the number of workers or on interruptions. Blocks in flight are
// bounded in bytes, so memory does not grow with the input (except for the table of duplicates and
// for single long records).
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

// Runs to the end. A run that was killed or that threw leaves partial files and a journal next to
// the output, and the same command resumes from there, even if inputs that were not read to their
// end have changed or are gone. Another command starts from the beginning. Only files in the
// journal are removed. Throws Error(kUsage) for options that contradict each other, for corpora
// that exist (without --overwrite), and while another process writes to the prefix; Error(kData)
// for inputs that cannot be used: under OnError::kFail the first bad record, with file, line and
// byte.
PreprocessReport preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer, Log& log,
                            Progress& progress, CheckpointRule checkpoint = {});

// --merge: concatenates the corpora; documents keep their order.
PreprocessReport merge_corpora(const std::vector<std::string>& prefixes,
                               const std::string& output_prefix, bool overwrite = false);

}  // namespace piton
