// The files that a run of preprocessing writes beside its output prefix: one run at a time, and no
// file but its own is touched.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/lock_file.h"
#include "data/preprocess/preprocess_journal.h"

namespace piton {

class OutputPrefix {
 public:
  // Makes the folder, takes the lock PREFIX.preprocess.lock, removes the drafts of a run that was
  // killed here, and reads the journal it left. Throws Error(kUsage) that names the process which
  // holds the lock.
  OutputPrefix(std::string prefix, const std::vector<std::string>& corpora);

  const std::optional<PreprocessJournal>& journal() const { return journal_; }

  // Throws Error(kUsage) if one of the corpora is there and may not be replaced.
  void refuse_existing(const std::vector<std::string>& corpora, bool overwrite) const;

  // For a run that starts afresh: removes what the old journal lists, and the journal. Throws
  // Error(kUsage) if a file that the new run would make is there all the same.
  void start_afresh(const std::vector<std::string>& new_files);

 private:
  void remove_drafts_of(std::int64_t process, const std::vector<std::string>& corpora) const;

  std::string prefix_;
  LockFile lock_;
  std::optional<PreprocessJournal> journal_;
};

}  // namespace piton
