// Standard error: log lines, and one live line of progress below them.
//
// On a terminal the progress line is redrawn in place, and log lines scroll above it. Elsewhere (a
// file, a batch system) progress is an ordinary line every few seconds. If the log is the result,
// as in training, it goes to standard output, and progress is shown only on a terminal.
// Thread-safe.
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

  // From now on shows only warnings and errors, and no progress.
  void be_quiet();

  // From now on shows no progress: the first rank shows that of all.
  void show_no_progress();

  // Sends the log to standard output from now on, because it is the result of the command. Where
  // nobody reads it any more, it ends, and the command does not; SIGPIPE is ignored from now on.
  // `launched`: by mpirun, which gives every rank a terminal as standard output, whoever reads it.
  // Returns whether a person reads the lines.
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
