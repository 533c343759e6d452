// How far an unfinished run of preprocessing came, and which files are its own:
// PREFIX.preprocess.json. Written before the first of those files is made, and replaced whole at
// each checkpoint, after what it speaks of was flushed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/records/block_reader.h"

namespace piton {

// What was written when the reader was at one place of the input.
struct PreprocessProgress {
  BlockReader::Place place;
  std::vector<IndexedWriter::Position> positions;  // of each corpus
  std::int64_t duplicates_logged = 0;
  std::int64_t documents = 0;
  std::int64_t duplicates = 0;
  std::int64_t text_bytes = 0;
  std::int64_t bad_records = 0;
  std::vector<BadRecord> first_bad;
};

struct PreprocessJournal : PreprocessProgress {
  // Hash of all that decides the output but the inputs: tokenizer and options.
  std::string work;
  // The inputs before `place.file`, as input_marks() has them, and that one itself: a run goes on
  // if they are the same. Those behind may change.
  std::string before;
  std::string at;
  // Of the list as a whole: whether the end that was reached is still the end.
  std::string all;
  bool complete = false;  // every input was read; the corpora are being put in place
  // At the start of the input at `place.file`: from there a run goes on where that file has
  // changed.
  PreprocessProgress file_start;
  std::vector<std::string> corpora;  // their names behind the output prefix: "_text_document"
  bool has_table = false;            // of duplicates

  static std::string path(const std::string& output_prefix) {
    return output_prefix + ".preprocess.json";
  }

  void store(const std::string& output_prefix) const;
  // Nothing if there is none. Throws Error(kData) if there is a file of that name and it is no
  // journal.
  static std::optional<PreprocessJournal> load(const std::string& output_prefix);

  // Every file that a run with this journal makes before its corpora are in place.
  std::vector<std::string> files(const std::string& output_prefix) const;
};

}  // namespace piton
