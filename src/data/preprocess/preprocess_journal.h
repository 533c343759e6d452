// How far an unfinished run of preprocessing came: PREFIX.preprocess.json, replaced whole at each
// checkpoint, after the partial files it speaks of were flushed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/records/block_reader.h"

namespace piton {

struct PreprocessJournal {
  // Hash of all that decides the output: inputs with sizes and times, tokenizer, options.
  std::string work;
  BlockReader::Place place;
  std::vector<IndexedWriter::Position> positions;  // of each key's corpus
  std::int64_t duplicates_logged = 0;
  std::int64_t documents = 0;
  std::int64_t duplicates = 0;
  std::int64_t text_bytes = 0;
  std::int64_t bad_records = 0;
  std::vector<BadRecord> first_bad;

  static std::string path(const std::string& output_prefix) {
    return output_prefix + ".preprocess.json";
  }

  void store(const std::string& output_prefix) const;
  // Nothing if there is none, or it cannot be read.
  static std::optional<PreprocessJournal> load(const std::string& output_prefix);
};

}  // namespace piton
