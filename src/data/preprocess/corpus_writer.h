// What preprocess makes, written in the order of the input: a corpus for each key, without the
// documents that were there before, and its progress, so that a killed run can resume.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/preprocess/document_encoder.h"
#include "data/preprocess/duplicate_filter.h"
#include "data/preprocess/input_marks.h"
#include "data/preprocess/preprocess_journal.h"
#include "data/preprocess/preprocess_options.h"

namespace piton {

// How often progress is made safe; tests make it rare or constant.
struct CheckpointRule {
  double seconds = 10;
};

// OUTPUT-PREFIX_KEY_document, or _sentence, for each key.
std::vector<std::string> corpus_prefixes(const PreprocessOptions& options);

// The same without the prefix, for the journal.
std::vector<std::string> corpus_suffixes(const PreprocessOptions& options);

// True if what `progress` speaks of is still there. Where `complete`, a corpus may be in place
// already: a run was killed while it put them there.
bool can_resume(const PreprocessOptions& options, const PreprocessProgress& progress,
                bool complete);

class CorpusWriter {
 public:
  // `input`: marks of the files, for the journal; none where the input cannot be read again. Goes
  // on where `journal` is if the run is `resumed`. Keeps a reference to the options.
  CorpusWriter(const PreprocessOptions& options, IdType type, PreprocessJournal journal,
               bool resumed, InputMarks input, CheckpointRule rule);

  // Throws Error(kData): a bad record under OnError::kFail, a file that cannot be written.
  void add(EncodedBlock& block);
  // Puts the corpora in place. Throws Error(kData) if there is no document.
  void finish();
  // The run failed. What was written stays with its journal, for a run that goes on; true if it
  // does. Nothing stays of input that cannot be read again, or that gave no document.
  bool suspend();

  IdType id_type() const { return type_; }
  const PreprocessJournal& journal() const { return journal_; }
  const std::vector<std::string>& prefixes() const { return prefixes_; }

 private:
  using Clock = std::chrono::steady_clock;

  // The wanted documents, as many at once as follow one another.
  void add_column(const EncodedBlock::Column& column, IndexedWriter& writer);
  void enter_file(std::size_t file);
  void checkpoint();

  const PreprocessOptions& options_;
  PreprocessJournal journal_;
  InputMarks input_;
  CheckpointRule rule_;
  IdType type_;
  Clock::time_point stored_ = Clock::now();
  std::vector<std::string> prefixes_;
  // A corpus that is in place already has none.
  std::vector<std::optional<IndexedWriter>> writers_;
  std::optional<DuplicateFilter> filter_;
  std::vector<bool> wanted_;           // of the documents of one block
  std::int64_t stored_documents_ = 0;  // that the journal on the disk speaks of
  bool adding_ = false;                // what is in memory is then between two documents
};

}  // namespace piton
