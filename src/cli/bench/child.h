// Another program, started and waited for.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <vector>

namespace piton::cli {

struct ChildResult {
  // As a shell reports it: 128 + the number of a signal, 127 if it could not be started.
  int code = 0;
  std::string output;
  std::string errors;  // what it wrote to standard error
};

inline constexpr int kNotStarted = 127;

// Runs words[0], found on PATH, with nothing on standard input and no signal blocked, and waits for
// it. `folder`: for its output. `running`: its number while it runs, else 0.
ChildResult run_child(const std::vector<std::string>& words, const std::filesystem::path& folder,
                      std::atomic<pid_t>& running);

// Of what a program wrote before it failed: the last line of piton, else the last line; "" of none.
// A launcher adds lines of its own after those of its ranks.
std::string last_line(const std::string& errors);

// The file of this program.
std::string own_program();

}  // namespace piton::cli
