// PREFIX.preprocess.json: the progress of an unfinished run of preprocessing, and which files
// belong to it. Written before the first of those files is created, and replaced atomically at each
// checkpoint, after the files it describes were flushed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/records/block_reader.h"

namespace piton {

// Records that were left out for one reason.
struct LeftOut {
  std::int64_t count = 0;
  std::vector<BadRecord> first;  // at most kShown

  static constexpr std::size_t kShown = 5;
  void add(const BadRecord& record) {
    ++count;
    if (first.size() < kShown) first.push_back(record);
  }
};

// State of the output when the reader was at one place of the input.
struct PreprocessProgress {
  BlockReader::Place place;
  std::vector<IndexedWriter::Position> positions;  // of each corpus
  std::int64_t duplicates_logged = 0;
  std::int64_t documents = 0;
  std::int64_t duplicates = 0;
  std::int64_t text_bytes = 0;
  LeftOut bad;
  // Of instruction data.
  LeftOut too_long;
  LeftOut unteaching;
  std::int64_t taught_tokens = 0;
  // Documents of each data set, if they are counted (CorpusWriter).
  std::vector<std::int64_t> set_documents;
};

struct PreprocessJournal : PreprocessProgress {
  // Hash of everything that determines the output, except the inputs: tokenizer and options.
  std::string work;
  // Marks (input_marks()) of the inputs before `place.file`, and of that file: a run resumes if
  // they are the same. Later inputs may change.
  std::string before;
  std::string at;
  // Mark of all inputs: shows whether the end of the input is still the end.
  std::string all;
  bool complete = false;  // every input was read; the corpora are being put in place
  // Progress at the start of input `place.file`: a run resumes from there if that file has changed.
  PreprocessProgress file_start;
  std::vector<std::string> corpora;  // their names after the output prefix: "_text_document"
  bool has_table = false;            // of duplicates

  static std::string path(const std::string& output_prefix) {
    return output_prefix + ".preprocess.json";
  }

  void store(const std::string& output_prefix) const;
  // Nothing if there is no journal. Throws Error(kData) if the file of that name is not a journal.
  static std::optional<PreprocessJournal> load(const std::string& output_prefix);

  // All files that a run with this journal creates before its corpora are in place.
  std::vector<std::string> files(const std::string& output_prefix) const;
};

}  // namespace piton
