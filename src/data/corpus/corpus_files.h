// Corpora that were made of files of a run (train/record_files.h): messages name the files.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace piton {

class CorpusFiles {
 public:
  CorpusFiles() = default;
  // By the prefix of the corpora, without the ending of each ("_packed_labels_document").
  explicit CorpusFiles(std::map<std::string, std::string> by_prefix)
      : by_prefix_(std::move(by_prefix)) {}

  // The file of the corpus with this prefix; "": it was not made of one.
  std::string file_of(const std::string& prefix) const;

  // `text` with the files in place of the prefixes of their corpora, and of files of these.
  std::string named_in(std::string_view text) const;

  // Calls work(). An Error names the files.
  template <typename Work>
  void naming(Work&& work) const {
    try {
      work();
    } catch (const Error& error) {
      if (by_prefix_.empty()) throw;
      throw Error(error.fault(), "{}", named_in(error.what()));
    }
  }

 private:
  std::map<std::string, std::string> by_prefix_;
};

// Passes lines to `log` so that they name the files. Both arguments must outlive this.
class CorpusFilesLog final : public Log {
 public:
  CorpusFilesLog(const CorpusFiles& files, Log& log) : files_(files), log_(log) {}
  void write(LogLevel level, std::string_view line) override {
    log_.write(level, files_.named_in(line));
  }

 private:
  const CorpusFiles& files_;
  Log& log_;
};

}  // namespace piton
