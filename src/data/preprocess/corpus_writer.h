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
#include "data/preprocess/preprocess_journal.h"
#include "data/preprocess/preprocess_options.h"

namespace piton {

// How often progress is made safe; tests make it rare or constant.
struct CheckpointRule {
  double seconds = 10;
};

// OUTPUT-PREFIX_KEY_document, or _sentence, for each key.
std::vector<std::string> corpus_prefixes(const PreprocessOptions& options);

// True if what the journal speaks of is still there. It is not where a run was killed between
// putting the corpora in place and removing the journal.
bool can_resume(const PreprocessOptions& options, const PreprocessJournal& journal);

class CorpusWriter {
 public:
  // Resumes at the journal's position if the run is `resumed`; `resumable`: the input can be read
  // again. Keeps a reference to the options.
  CorpusWriter(const PreprocessOptions& options, IdType type, PreprocessJournal journal,
               bool resumed, bool resumable, CheckpointRule rule);

  // Throws Error(kData): a bad record under OnError::kFail, a file that cannot be written.
  void add(EncodedBlock& block);
  // Puts the corpora in place. Throws Error(kData) if there is no document.
  void finish();
  // The run failed: nothing is left.
  void forget();

  IdType id_type() const { return type_; }
  const PreprocessJournal& journal() const { return journal_; }
  const std::vector<std::string>& prefixes() const { return prefixes_; }

 private:
  using Clock = std::chrono::steady_clock;

  // The wanted documents, as many at once as follow one another.
  void add_column(const EncodedBlock::Column& column, IndexedWriter& writer);
  void checkpoint();

  const PreprocessOptions& options_;
  PreprocessJournal journal_;
  bool resumable_;
  CheckpointRule rule_;
  IdType type_;
  Clock::time_point stored_ = Clock::now();
  std::vector<std::string> prefixes_;
  std::vector<IndexedWriter> writers_;
  std::optional<DuplicateFilter> filter_;
  std::vector<bool> wanted_;  // of the documents of one block
};

}  // namespace piton
