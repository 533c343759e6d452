// Detects documents that occurred before, by 128-bit hashes of their texts. With 10^10 documents,
// the probability that two different ones count as equal is 10^20 / 2^129 = 10^-19.
//
// Hashes are kept in memory up to a limit, then written to disk as sorted runs (NAME.run-0, ...),
// which are searched. A log (NAME.log, 16 bytes per document) lets a killed run resume from its
// last checkpoint. All files are removed at the end, unless keep() is called.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/preprocess/content_hash.h"

namespace piton {

class DuplicateFilter {
 public:
  // `kept`: number of valid hashes in the log of an earlier run. `memory_entries`: limit of hashes
  // in memory; each takes 16 bytes, about 32 with the free slots of the table.
  DuplicateFilter(std::string name, std::int64_t kept = 0, std::size_t memory_entries = 4 << 20);
  ~DuplicateFilter();

  // True the first time a hash is inserted. Throws Error(kData) if the disk is full.
  bool insert(const ContentHash& hash);
  std::int64_t size() const;
  // After flush(), the log has size() entries that survive a crash.
  void flush();
  // All files that a filter of this name may create.
  static std::vector<std::string> files(const std::string& name);

  // Removes the files, as the destructor does unless keep() was called.
  void discard();
  void keep();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
