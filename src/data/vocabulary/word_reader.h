// The records of a block as counted words: the part of learning a tokenizer that many threads do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/records/block_reader.h"
#include "data/records/record_parser.h"
#include "text/training/word_counts.h"
#include "text/training/word_cutter.h"

namespace piton {

// What one block held in addition to its words.
struct BlockSummary {
  std::int64_t documents = 0;
  std::int64_t text_bytes = 0;
  std::int64_t consumed_bytes = 0;  // packed bytes of all files up to here
  std::vector<BadRecord> bad;       // in order
};

// One for each thread.
class WordReader {
 public:
  // `cutter` must outlive the reader. `keys`: their names in the files.
  WordReader(const WordCutter& cutter, std::vector<std::string> keys, SampleBy sample_by)
      : cutter_(&cutter), keys_(std::move(keys)), sample_by_(sample_by) {}

  // Counts the words of every text of the block.
  BlockSummary read(RecordBlock& block);

  WordCounts& counts() { return counts_; }

 private:
  const WordCutter* cutter_;
  std::vector<std::string> keys_;
  SampleBy sample_by_;
  std::shared_ptr<const FileFacts> file_;  // that parser_ was made for
  std::unique_ptr<RecordParser> parser_;
  ParsedRecord record_;
  WordCutter::Scratch scratch_;
  WordCounts counts_;
};

}  // namespace piton
