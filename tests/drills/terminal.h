// What a person at a terminal sees and types.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "drills/tiny_run.h"

namespace piton::drill {

// A job in the foreground of a separate terminal.
class Terminal {
 public:
  explicit Terminal(Words words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    id_ = ::forkpty(&descriptor_, nullptr, nullptr, nullptr);
    if (id_ != 0) return;
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ~Terminal() {
    close();
    if (!end_) ::kill(-id_, SIGKILL);
  }
  void type(const std::string& keys) const {
    EXPECT_EQ(::write(descriptor_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  void close() {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = -1;
  }
  // Reads what is shown until it contains `text`.
  bool shows(const std::string& text, std::chrono::seconds limit = std::chrono::seconds(60)) {
    return wait_for(
        [&] {
          read();
          return shown.find(text) != std::string::npos;
        },
        limit);
  }
  int wait(std::chrono::seconds limit) {
    wait_for(
        [&] {
          read();
          int status = 0;
          if (!end_ && ::waitpid(id_, &status, WNOHANG) == id_) {
            end_ = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
          }
          return end_.has_value();
        },
        limit);
    return end_.value_or(-1000);
  }
  std::string shown;

 private:
  void read() {
    if (descriptor_ < 0) return;
    ::fcntl(descriptor_, F_SETFL, O_NONBLOCK);
    char bytes[4096];
    for (ssize_t got = 0; (got = ::read(descriptor_, bytes, sizeof bytes)) > 0;) {
      shown.append(bytes, static_cast<std::size_t>(got));
    }
  }
  int descriptor_ = -1;
  pid_t id_ = -1;
  std::optional<int> end_;
};

}  // namespace piton::drill
