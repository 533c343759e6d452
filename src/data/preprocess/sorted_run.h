// A file of hashes in ascending order, for search and for reading from the start. Read by calls,
// not memory-mapped: if it is truncated while in use, the error names it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/files/regular_file.h"
#include "data/preprocess/content_hash.h"

namespace piton {

class SortedRun {
 public:
  // Keeps one hash in memory for each block of the file. Throws Error(kData) if it cannot be read.
  explicit SortedRun(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  bool contains(const ContentHash& hash) const;  // one read

  // Reads from the start. The run must outlive the cursor.
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
  // Entries of a page, which one read of a search covers.
  static constexpr std::int64_t kBlock = 4096 / sizeof(ContentHash);
  // Entries [first, first + kBlock), fewer at the end.
  void read_block(std::int64_t first, std::vector<ContentHash>& block) const;

  RegularFile file_;
  std::int64_t size_ = 0;             // in entries
  std::vector<ContentHash> leaders_;  // first of each block
};

}  // namespace piton
