// Starts another program, sends it signals and waits for it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace piton {

// How a process ended: its exit code, or the signal that killed it.
struct ProcessEnd {
  int code = -1;   // -1: killed
  int signal = 0;  // 0: exited by itself
  bool operator==(const ProcessEnd&) const = default;
};

inline std::string to_string(const ProcessEnd& end) {
  return end.signal != 0 ? "killed by signal " + std::to_string(end.signal)
                         : "exit code " + std::to_string(end.code);
}

class Process {
 public:
  struct Settings {
    std::vector<std::string> environment;  // "NAME=value", added to the test's own
    std::vector<int> closed;               // of the descriptors 0, 1, 2
    std::filesystem::path out;             // standard output and error; empty: dropped
    std::filesystem::path error;           // empty: where `out` goes
  };

  // words[0] is the program's path.
  Process(std::vector<std::string> words, const Settings& settings) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string out = settings.out.empty() ? "/dev/null" : settings.out.string();
    const std::string error = settings.error.empty() ? "" : settings.error.string();
    id_ = ::fork();
    if (id_ != 0) return;
    // The child: calls only functions that are safe after fork().
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    for (const int number : {SIGINT, SIGQUIT, SIGPIPE}) ::signal(number, SIG_DFL);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND;
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    ::dup2(::open(out.c_str(), kFlags, 0644), 1);
    ::dup2(error.empty() ? 1 : ::open(error.c_str(), kFlags, 0644), 2);
    for (int number = 3; number < 64; ++number) ::close(number);
    for (const int number : settings.closed) ::close(number);
    for (const std::string& variable : settings.environment) {
      ::putenv(const_cast<char*>(variable.c_str()));
    }
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  // Kills the process, if it still runs, with its group.
  ~Process() {
    if (!end_) {
      kill_group(SIGKILL);
      wait(std::chrono::seconds(10));
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t id() const { return id_; }
  void kill(int signal) const {
    if (!end_) ::kill(id_, signal);
  }
  // Sends the signal to the process and to its children that are still in its group.
  void kill_group(int signal) const {
    if (!end_) ::kill(-id_, signal);
  }

  bool running() { return !wait(std::chrono::seconds(0)); }

  // Empty if it still runs after `limit`.
  std::optional<ProcessEnd> wait(std::chrono::milliseconds limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    while (!end_) {
      int status = 0;
      const pid_t ended = ::waitpid(id_, &status, WNOHANG);
      if (ended == id_) {
        end_ = WIFSIGNALED(status) ? ProcessEnd{.code = -1, .signal = WTERMSIG(status)}
                                   : ProcessEnd{.code = WEXITSTATUS(status), .signal = 0};
        break;
      }
      if (std::chrono::steady_clock::now() >= until) return std::nullopt;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return end_;
  }

 private:
  pid_t id_ = -1;
  std::optional<ProcessEnd> end_;
};

inline std::string text_of(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

}  // namespace piton
