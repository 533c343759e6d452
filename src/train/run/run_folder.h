// The folder of --save: checkpoints, config.toml, metrics.jsonl. One run writes to it at a time.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/files/lock_file.h"
#include "train/sinks/metrics.h"

namespace piton {

// The first samples of the run, as text.
inline constexpr const char* kSamplesName = "samples.txt";

// A folder that is made where there is none, and removed again if nothing is in it at the end.
class MadeFolder {
 public:
  explicit MadeFolder(const std::filesystem::path& dir);
  ~MadeFolder();
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

 private:
  std::filesystem::path made_;  // empty: it existed
};

// Held by the first rank during the whole run.
class RunFolder {
 public:
  // Creates the folder (until the end of this object, if nothing is written to it), takes its lock,
  // and removes the temporary files of a run that was killed there. Throws Error(kUsage) with the
  // run that holds the lock.
  explicit RunFolder(std::filesystem::path dir);

  // Throws Error(kUsage) if a living run holds the lock of `dir`. Takes and writes nothing.
  static void check_free(const std::filesystem::path& dir);

  // Writes config.toml and opens the metrics, truncated to `iteration`.
  void start(const std::string& config, std::int64_t iteration);

  // Whether the folder is still the one that was locked: it may be removed or renamed during a run,
  // and another run may have made one of this name.
  bool is_ours() const { return lock_.loss().empty(); }
  // Throws Error(kData) if it is not. Nothing may be written to the folder then.
  void check_ours() const;

  MetricsFile& metrics() { return *metrics_; }
  // Opens completions.jsonl (--log-completions), truncated to `iteration`.
  void start_completions(std::int64_t iteration);
  MetricsFile* completions() { return completions_.get(); }  // null: not started

 private:
  std::filesystem::path dir_;
  MadeFolder made_;  // outlives the lock, which is a file in it
  LockFile lock_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<MetricsFile> completions_;
};

// Whether a run that loads `load` and saves to `save` continues the run in `save`: the same folder,
// or a checkpoint in it.
bool continues(const std::filesystem::path& load, const std::filesystem::path& save);

// A warning for runs that would lose hours of work in a crash; "" if saves are frequent enough.
// `seconds_left`: to the end of the run. `save`, `save_interval`: as given.
std::string warning_of_rare_saves(double seconds_left, const std::string& save,
                                  std::int64_t save_interval);

}  // namespace piton
