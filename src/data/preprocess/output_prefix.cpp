#include "data/preprocess/output_prefix.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/files/drafts.h"
#include "base/files/files.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// Creates the folder of `prefix`.
std::string prepared(std::string prefix) {
  create_folders(fs::path(prefix).parent_path());
  return prefix;
}

// A dangling link exists, too.
bool is_there(const std::string& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

}  // namespace

OutputPrefix::OutputPrefix(std::string prefix, const std::vector<std::string>& corpora)
    : prefix_(prepared(std::move(prefix))),
      lock_(prefix_ + ".preprocess.lock", "--output-prefix: " + prefix_, {},
            [&](const LockOwner& killed) { remove_drafts_of(killed.process, corpora); }),
      journal_(PreprocessJournal::load(prefix_)) {}

OutputPrefix::~OutputPrefix() {
  std::error_code ignored;
  if (removes_journal_) fs::remove(PreprocessJournal::path(prefix_), ignored);
}

void OutputPrefix::start_unresumable(const std::vector<std::string>& suffixes) {
  PreprocessJournal journal;
  journal.work = "unresumable";
  journal.corpora = suffixes;
  start_afresh(journal.files(prefix_));
  journal.store(prefix_);
  removes_journal_ = true;
}

void OutputPrefix::remove_drafts_of(std::int64_t process,
                                    const std::vector<std::string>& corpora) const {
  const std::optional<PreprocessJournal> journal = PreprocessJournal::load(prefix_);
  std::vector<fs::path> files{PreprocessJournal::path(prefix_)};
  for (const std::string& corpus : corpora) files.emplace_back(corpus + ".idx");
  if (journal) {
    for (const std::string& suffix : journal->corpora)
      files.emplace_back(prefix_ + suffix + ".idx");
    for (const std::string& file : journal->files(prefix_)) files.emplace_back(file);
  }
  remove_drafts(files, process);
}

void OutputPrefix::refuse_existing(const std::vector<std::string>& corpora, bool overwrite) const {
  if (overwrite) return;
  for (const std::string& corpus : corpora) {
    for (const char* ending : {".idx", ".bin"}) {
      if (!is_there(corpus + ending)) continue;
      throw Error(Fault::kUsage,
                  "{}{} is there already; give --overwrite to replace it, or another "
                  "--output-prefix",
                  corpus, ending);
    }
  }
}

void OutputPrefix::start_afresh(const std::vector<std::string>& new_files) {
  std::error_code ignored;
  if (journal_) {
    for (const std::string& file : journal_->files(prefix_)) fs::remove(file, ignored);
    fs::remove(PreprocessJournal::path(prefix_), ignored);
    journal_.reset();
  }
  for (const std::string& file : new_files) {
    if (!is_there(file)) continue;
    throw Error(Fault::kUsage,
                "{} is there already, and no journal says that it is a run's own; move "
                "it away, or choose another --output-prefix",
                file);
  }
}

}  // namespace piton
