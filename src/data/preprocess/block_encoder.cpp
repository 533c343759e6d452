#include "data/preprocess/block_encoder.h"

namespace piton {

void EncodedBlock::begin(const RecordBlock& block, std::size_t num_columns) {
  columns.resize(num_columns);
  for (Column& column : columns) {
    column.ids.clear();
    column.lengths.clear();
    column.sequences.clear();
  }
  hashes.clear();
  bad.clear();
  taught.clear();
  too_long.clear();
  unteaching.clear();
  documents = 0;
  text_bytes = 0;
  file = block.file->index;
  end_byte = block.end_byte;
  consumed_bytes = block.consumed_bytes;
}

}  // namespace piton
