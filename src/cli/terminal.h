// Standard error: log lines, and one live line of progress below them.
//
// On a terminal the progress line is redrawn in place, and log lines scroll above it. Elsewhere (a
// file, a batch system) progress is an ordinary line every few seconds. Where the log is the
// result, as in training, it goes to standard output, and progress is shown on a terminal alone.
// Safe from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/log.h"
#include "base/progress.h"

namespace piton::cli {

class Terminal final : public Log, public Progress {
 public:
  Terminal();
  ~Terminal() override;

  // Warnings and errors only from now on, and no progress.
  void be_quiet();

  // The log is what the command gives: on standard output from now on. `launched`: by mpirun, which
  // makes a terminal of every rank's standard output, whoever reads it in the end. Returns whether
  // the lines are read by eye.
  bool log_to_stdout(bool launched);

  void write(LogLevel level, std::string_view line) override;
  void update(const ProgressState& state) override;
  void finish() override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// "[=====>    ]  50%  512/1024  12.4 MB/s  0:41 left", at most `width` columns; without a total
// "512 done  12.4 MB/s  0:40".
std::string progress_line(const ProgressState& state, int width);

}  // namespace piton::cli
