// Which documents were met before, by 128 bits of hash of their texts: with 10^10 documents the
// chance that two different ones are taken for equal is 10^20 / 2^129 = 10^-19.
//
// Hashes are kept in memory up to a limit; then they go to disk as sorted runs (NAME.run-0, ...),
// which are searched. A log (NAME.log, 16 bytes a document) lets a run that was killed
// take up where its last checkpoint was. All files are removed at the end, unless they are kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/preprocess/content_hash.h"

namespace piton {

class DuplicateFilter {
 public:
  // `kept`: how many hashes of an earlier run's log are valid. `memory_entries`: 16 bytes each,
  // with the table's slack about 32.
  DuplicateFilter(std::string name, std::int64_t kept = 0, std::size_t memory_entries = 4 << 20);
  ~DuplicateFilter();

  // True the first time. Throws Error(kData) if the disk is full.
  bool insert(const ContentHash& hash);
  std::int64_t size() const;
  // After it the log holds size() entries that survive a crash.
  void flush();
  // Every file that a filter of this name makes.
  static std::vector<std::string> files(const std::string& name);

  // Removes the files; also what a dropped filter does unless keep() was called.
  void discard();
  void keep();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
