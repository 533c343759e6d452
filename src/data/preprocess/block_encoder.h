// Encodes a block of records as token ids: the parallel part of preprocessing.
#pragma once

#include <cstdint>
#include <vector>

#include "data/preprocess/content_hash.h"
#include "data/records/block_reader.h"

namespace piton {

// Documents of one block, in order, for each corpus.
struct EncodedBlock {
  struct Column {
    std::vector<std::byte> ids;           // of all sequences, in the form of the corpus
    std::vector<std::int32_t> lengths;    // of each sequence
    std::vector<std::int32_t> sequences;  // of each document
  };
  std::vector<Column> columns;      // one for each corpus
  std::vector<ContentHash> hashes;  // of each document, if asked for
  std::vector<BadRecord> bad;       // in order
  std::int64_t documents = 0;
  std::int64_t text_bytes = 0;  // of the texts that were encoded

  // Of instruction data.
  std::vector<std::int64_t> taught;   // tokens that each document teaches
  std::vector<BadRecord> too_long;    // samples left out, in order
  std::vector<BadRecord> unteaching;  // the same

  // Where to resume after the block.
  std::size_t file = 0;
  std::int64_t end_byte = 0;
  std::int64_t consumed_bytes = 0;

  // Empties the lists but keeps their memory, and takes place and columns from the next block.
  void begin(const RecordBlock& block, std::size_t num_columns);
};

// One per thread.
class BlockEncoder {
 public:
  virtual ~BlockEncoder() = default;
  // Overwrites `out`, reusing its memory. Moves the block's unusable records into it.
  virtual void encode(RecordBlock& block, EncodedBlock& out) = 0;
};

}  // namespace piton
