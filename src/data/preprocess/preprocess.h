// Preprocessing: from raw files to token files.
//
//   one worker at a time    cuts the unpacked files into blocks of whole records
//   all workers             parse records, split sentences, tokenize
//   one worker at a time    drops duplicates and writes, in the order of the input
//   one thread              packs samples, or mixes data sets (second_pass.h), if asked for
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
  LeftOut bad;                        // records
  std::int64_t text_bytes = 0;        // of the texts read, this run and those before it
  double seconds = 0;                 // of this run
  bool resumed = false;

  // Of instruction data.
  std::string handler;                      // "": the records are texts
  std::string prompt;                       // name of the template
  std::string chat_template;                // of a named one, in Jinja
  std::int64_t samples = 0;                 // sequences written; packed ones count as one
  std::int64_t taught_tokens = 0;           // in them
  LeftOut too_long;                         // samples
  LeftOut unteaching;                       // samples
  std::vector<std::int64_t> set_documents;  // of each data set, if they are counted
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

}  // namespace piton
