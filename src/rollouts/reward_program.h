// A program that computes rewards: it reads a line about each answer from its standard input, and
// writes a line with a number to its standard output.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace piton {

// Throws Error(kUsage) for a --reward-command that a shell cannot read, or whose first word, where
// that is plain, names no program: a run would learn of it after its model is loaded.
void check_reward_command(const std::string& command);

class RewardProgram {
 public:
  // Starts `command` in a shell. Its standard error is that of this process. Throws Error(kData) if
  // it cannot be started.
  RewardProgram(std::string command, std::int64_t timeout_seconds);
  // Closes its input, and ends it and the processes that it started if it does not end soon.
  ~RewardProgram();
  RewardProgram(const RewardProgram&) = delete;
  RewardProgram& operator=(const RewardProgram&) = delete;

  // The number that it writes for each line. Throws Error(kData) if it ends, writes something else,
  // or writes nothing for longer than the limit.
  std::vector<double> numbers(std::span<const std::string> lines);

 private:
  double number_in(const std::string& line) const;
  std::string take_line();
  [[noreturn]] void refuse_more() const;
  [[noreturn]] void refuse_end();

  std::string command_;
  std::int64_t timeout_seconds_;
  pid_t child_ = -1;
  int input_ = -1;  // of the program
  int output_ = -1;
  std::string read_;  // of its output, not yet taken
};

}  // namespace piton
