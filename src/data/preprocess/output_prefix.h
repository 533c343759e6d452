// Guards the files that preprocessing writes next to its output prefix: one run at a time, and only
// its own files are touched.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/files/lock_file.h"
#include "data/preprocess/preprocess_journal.h"

namespace piton {

class OutputPrefix {
 public:
  // Creates the folder, takes the lock PREFIX.preprocess.lock, removes the temporary files of a run
  // that was killed here, and reads its journal. Throws Error(kUsage) with the process that holds
  // the lock.
  OutputPrefix(std::string prefix, const std::vector<std::string>& corpora);
  ~OutputPrefix();

  const std::optional<PreprocessJournal>& journal() const { return journal_; }

  // Throws Error(kUsage) if one of the corpora exists and must not be replaced.
  void refuse_existing(const std::vector<std::string>& corpora, bool overwrite) const;

  // For a run that starts from the beginning: removes the files in the old journal, and the
  // journal. Throws Error(kUsage) if a file that the new run would create still exists.
  void start_afresh(const std::vector<std::string>& new_files);

  // For a run that cannot resume: the same, and a journal tells the next run which files to remove,
  // until this object is destroyed. `suffixes` of the corpora, after the prefix.
  void start_unresumable(const std::vector<std::string>& suffixes);

 private:
  void remove_drafts_of(std::int64_t process, const std::vector<std::string>& corpora) const;

  std::string prefix_;
  LockFile lock_;
  std::optional<PreprocessJournal> journal_;
  bool removes_journal_ = false;
};

}  // namespace piton
