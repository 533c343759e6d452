// A temporary folder of this process, removed at the end, and if a signal ends the process before.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "cli/terminal/stop_signals.h"

namespace piton::cli {

class ScratchFolder {
 public:
  // Make it before any thread of the process: signals are received on one.
  explicit ScratchFolder(Log& log)
      : path_(std::filesystem::temp_directory_path() / fmt::format("piton-bench-{}", ::getpid())),
        signals_(log) {
    signals_.before_end([this] {
      if (const pid_t child = child_; child > 0) ::kill(child, SIGTERM);
      remove();
    });
  }
  ~ScratchFolder() {
    signals_.before_end(nullptr);
    remove();
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  // It is created by the first file that is written there.
  const std::filesystem::path& path() const { return path_; }

  // The process that uses the folder now, and that such a signal ends too; 0: none.
  std::atomic<pid_t>& child() { return child_; }

 private:
  void remove() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::filesystem::path path_;
  std::atomic<pid_t> child_ = 0;
  StopSignals signals_;
};

}  // namespace piton::cli
