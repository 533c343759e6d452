// Hashes in a file, in ascending order: searched, and read from front to back. The file is read by
// calls, never mapped: one that is cut short while it is in use is an error that names it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/regular_file.h"
#include "data/preprocess/content_hash.h"

namespace piton {

class SortedRun {
 public:
  // Keeps one hash in memory for each block of the file. Throws Error(kData) if it cannot be read.
  explicit SortedRun(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  bool contains(const ContentHash& hash) const;  // one read

  // From the front. The run outlives the cursor.
  class Cursor {
   public:
    explicit Cursor(const SortedRun& run) : run_(&run) {}
    std::optional<ContentHash> next();

   private:
    const SortedRun* run_;
    std::int64_t at_ = 0;  // first entry that is not in block_
    std::vector<ContentHash> block_;
    std::size_t used_ = 0;
  };

 private:
  // Of a page: what a search reads at once.
  static constexpr std::int64_t kBlock = 4096 / sizeof(ContentHash);
  // Entries [first, first + kBlock), fewer at the end.
  void read_block(std::int64_t first, std::vector<ContentHash>& block) const;

  RegularFile file_;
  std::int64_t size_ = 0;             // in entries
  std::vector<ContentHash> leaders_;  // first of each block
};

}  // namespace piton
