// A temporary folder for one test, and small corpora in it.
#pragma once

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"

namespace piton {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    static std::atomic<int> count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("piton-data-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// documents -> sequences -> ids
using Documents = std::vector<std::vector<std::vector<std::int32_t>>>;

inline void write_corpus(const std::string& prefix, IdType type, const Documents& documents) {
  IndexedWriter writer(prefix, type);
  for (const auto& document : documents) {
    for (const auto& ids : document) writer.add_sequence(ids);
    writer.end_document();
  }
  writer.finish();
}

}  // namespace piton
