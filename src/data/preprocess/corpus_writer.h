// Writes the output of preprocess in the order of the input: one corpus per key, without repeated
// documents, and the progress, so that a killed run can resume.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/preprocess/block_encoder.h"
#include "data/preprocess/duplicate_filter.h"
#include "data/preprocess/input_marks.h"
#include "data/preprocess/preprocess_journal.h"
#include "data/preprocess/preprocess_options.h"

namespace piton {

// How often progress is stored; tests store it rarely or always.
struct CheckpointRule {
  double seconds = 10;
};

// OUTPUT-PREFIX_KEY_document, or _sentence, for each key; OUTPUT-PREFIX_packed_COLUMN_document for
// each column of instruction data.
std::vector<std::string> corpus_prefixes(const PreprocessOptions& options);

// The same without the prefix, for the journal.
std::vector<std::string> corpus_suffixes(const PreprocessOptions& options);

// True if the files that `progress` describes still exist. If `complete`, a corpus may be in place
// already: the run was killed while it renamed its files.
bool can_resume(const PreprocessOptions& options, const PreprocessProgress& progress,
                bool complete);

// The journal that a run starts with.
struct JournalStart {
  PreprocessJournal journal;
  bool resumed = false;  // the run continues from `journal`
  InputMarks input;      // marks of the files; empty if the input cannot be read again
  CheckpointRule rule;
  // Data set of each file; empty: they are not counted. With --max-samples needed.
  std::vector<std::size_t> set_of_file;
};

class CorpusWriter {
 public:
  // Keeps a reference to the options.
  CorpusWriter(const PreprocessOptions& options, IdType type, JournalStart start);

  // Throws Error(kData) for a bad record under OnError::kFail, and if a file cannot be written.
  void add(EncodedBlock& block);
  // Renames the corpora into place. Throws Error(kData) if there is no document.
  void finish();
  // To be called after a failure. Keeps the output and its journal, so that a later run can resume,
  // and returns true. Removes them and returns false if the input cannot be read again or gave no
  // document.
  bool suspend();

  IdType id_type() const { return type_; }
  const PreprocessJournal& journal() const { return journal_; }
  // Whether no later file can add a document, as every data set has --max-samples of them.
  bool is_full() const;
  const std::vector<std::string>& prefixes() const { return prefixes_; }

 private:
  using Clock = std::chrono::steady_clock;

  // Adds the wanted documents, each run of consecutive ones at once.
  void add_column(const EncodedBlock::Column& column, IndexedWriter& writer);
  // Which documents of the block are written: those that did not occur before, up to --max-samples.
  void choose(const EncodedBlock& block);
  void enter_file(std::size_t file);
  void checkpoint();

  const PreprocessOptions& options_;
  PreprocessJournal journal_;
  InputMarks input_;
  std::vector<std::size_t> set_of_file_;
  CheckpointRule rule_;
  IdType type_;
  Clock::time_point stored_ = Clock::now();
  std::vector<std::string> prefixes_;
  // Empty for a corpus that is already in place.
  std::vector<std::optional<IndexedWriter>> writers_;
  std::optional<DuplicateFilter> filter_;
  std::vector<bool> wanted_;           // of the documents of one block
  std::int64_t stored_documents_ = 0;  // documents in the stored journal
  bool adding_ =
      false;  // add() is in the middle of a block: the journal in memory is not consistent
};

}  // namespace piton
