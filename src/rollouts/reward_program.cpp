#include "rollouts/reward_program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "base/shell_word.h"
#include "base/trimmed.h"

extern char** environ;

namespace piton {
namespace {

constexpr std::size_t kLongestLine = 4096;  // of a number
constexpr auto kPatience = std::chrono::seconds(2);

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw Error(Fault::kData, "--reward-command: no pipe can be made: {}",
                  std::generic_category().message(errno));
    }
    read = ends[0];
    write = ends[1];
  }
  int read = -1;
  int write = -1;
};

// A program that has ended must not end this one by SIGPIPE.
class WithoutBrokenPipes {
 public:
  WithoutBrokenPipes() {
    struct sigaction ignore {};
    ignore.sa_handler = SIG_IGN;
    ::sigaction(SIGPIPE, &ignore, &before_);
  }
  ~WithoutBrokenPipes() { ::sigaction(SIGPIPE, &before_, nullptr); }
  WithoutBrokenPipes(const WithoutBrokenPipes&) = delete;
  WithoutBrokenPipes& operator=(const WithoutBrokenPipes&) = delete;

 private:
  struct sigaction before_ {};
};

// What a shell is started with: its words after "sh", and which descriptors it gets.
struct ShellStart {
  std::vector<std::string> words;
  int input = -1;  // -1: /dev/null
  int output = -1;
  bool silent = false;  // its standard error is /dev/null too
};

pid_t start(ShellStart shell) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  const auto give = [&](int descriptor, int as) {
    if (descriptor >= 0)
      ::posix_spawn_file_actions_adddup2(&actions, descriptor, as);
    else
      ::posix_spawn_file_actions_addopen(&actions, as, "/dev/null", O_RDWR, 0);
  };
  give(shell.input, STDIN_FILENO);
  give(shell.output, STDOUT_FILENO);
  if (shell.silent) give(-1, STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  // In a separate group: it is ended with all that it started, and Ctrl-C is for the run alone. It
  // begins with the usual handling of signals.
  sigset_t all;
  sigset_t none;
  sigfillset(&all);
  sigemptyset(&none);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  std::string name = "sh";
  std::vector<char*> arguments = {name.data()};
  for (std::string& word : shell.words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  const int error =
      ::posix_spawn(&child, "/bin/sh", &actions, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    throw Error(Fault::kData, "--reward-command: /bin/sh cannot be started: {}",
                std::generic_category().message(error));
  }
  return child;
}

bool shell_succeeds(std::vector<std::string> words) {
  const pid_t child = start({.words = std::move(words), .silent = true});
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The first word of a command, "" if a shell may change it before it looks for the program.
std::string plain_first_word(const std::string& command) {
  const std::size_t begin = command.find_first_not_of(" \t\n");
  if (begin == command.npos) return "";
  const std::string word = command.substr(begin, command.find_first_of(" \t\n;|&", begin) - begin);
  const bool assigns = word.find('=') != word.npos;
  return !assigns && shell_word(word) == word ? word : "";
}

}  // namespace

void check_reward_command(const std::string& command) {
  if (!shell_succeeds({"-n", "-c", command})) {
    throw Error(Fault::kUsage,
                "--reward-command: /bin/sh cannot read {}; check its quotes and brackets", command);
  }
  const std::string word = plain_first_word(command);
  if (word.empty()) return;
  std::error_code ignored;
  if (word.find('/') == word.npos) {
    if (shell_succeeds({"-c", "command -v -- \"$1\"", "sh", word})) return;
    const bool here = std::filesystem::is_regular_file(word, ignored);
    throw Error(Fault::kUsage, "--reward-command: there is no program {} on the PATH; {}", word,
                here ? fmt::format("wanted ./{}, or the name of its interpreter before it", word)
                     : "check its name, or give its path");
  }
  if (!std::filesystem::exists(word, ignored))
    throw Error(Fault::kUsage, "--reward-command: there is no {}; check the path", word);
  if (std::filesystem::is_directory(word, ignored) || ::access(word.c_str(), X_OK) != 0) {
    throw Error(Fault::kUsage,
                "--reward-command: {} is not executable; chmod +x it, or give its interpreter, as "
                "in \"python3 {}\"",
                word, word);
  }
}

RewardProgram::RewardProgram(std::string command, std::int64_t timeout_seconds)
    : command_(std::move(command)), timeout_seconds_(timeout_seconds) {
  const Pipe input;
  const Pipe output;
  child_ = start({.words = {"-c", command_}, .input = input.read, .output = output.write});
  ::close(input.read);
  ::close(output.write);
  input_ = input.write;
  output_ = output.read;
  ::fcntl(input_, F_SETFL, O_NONBLOCK);
}

RewardProgram::~RewardProgram() {
  if (input_ >= 0) ::close(input_);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (child_ > 0 && ::waitpid(child_, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > end) {
      ::kill(-child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  ::close(output_);
}

std::string RewardProgram::take_line() {
  const std::size_t end = read_.find('\n');
  if (end == read_.npos) return "";
  std::string line = read_.substr(0, end + 1);
  read_.erase(0, end + 1);
  return line;
}

double RewardProgram::number_in(const std::string& line) const {
  const std::string_view text = trimmed(line);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value))
    return value;
  throw Error(Fault::kData,
              "--reward-command: {} wrote \"{}\", wanted one finite number on each line", command_,
              text.substr(0, 80));
}

void RewardProgram::refuse_more() const {
  throw Error(
      Fault::kData,
      "--reward-command: {} wrote more lines than it was given answers, wanted one for each",
      command_);
}

void RewardProgram::refuse_end() {
  int status = 0;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  pid_t ended = 0;
  while ((ended = ::waitpid(child_, &status, WNOHANG)) == 0 &&
         std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::string how = "closed its output";
  if (ended == child_) {
    child_ = -1;
    how = WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                              : fmt::format("ended with exit code {}", WEXITSTATUS(status));
  }
  throw Error(Fault::kData,
              "--reward-command: {} {} before it had written the reward of each answer; it must "
              "read lines until its input ends, and flush what it writes",
              command_, how);
}

std::vector<double> RewardProgram::numbers(std::span<const std::string> lines) {
  const WithoutBrokenPipes quiet;
  // Of an earlier line, which arrived late: later numbers would be those of other answers.
  pollfd early{output_, POLLIN, 0};
  if (!read_.empty() || (::poll(&early, 1, 0) > 0 && (early.revents & POLLIN) != 0)) refuse_more();
  std::string unwritten;
  for (const std::string& line : lines) unwritten += line + "\n";
  std::vector<double> found;
  std::size_t written = 0;
  while (found.size() < lines.size()) {
    std::array<pollfd, 2> wanted = {pollfd{output_, POLLIN, 0},
                                    pollfd{written < unwritten.size() ? input_ : -1, POLLOUT, 0}};
    const int ready =
        ::poll(wanted.data(), wanted.size(), static_cast<int>(timeout_seconds_ * 1000));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      throw Error(Fault::kData,
                  "--reward-command: {} was silent for {} seconds, after {} of {} rewards; it must "
                  "flush each line, or give it more time with --reward-timeout",
                  command_, timeout_seconds_, found.size(), lines.size());
    }
    if (wanted[1].revents != 0) {
      const ssize_t count = ::write(input_, unwritten.data() + written, unwritten.size() - written);
      if (count < 0 && errno != EAGAIN && errno != EINTR) refuse_end();
      if (count > 0) written += static_cast<std::size_t>(count);
    }
    if (wanted[0].revents == 0) continue;
    std::array<char, 1 << 16> block;
    const ssize_t count = ::read(output_, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) refuse_end();
    read_.append(block.data(), static_cast<std::size_t>(count));
    for (std::string line = take_line(); !line.empty(); line = take_line()) {
      if (found.size() == lines.size()) {
        refuse_more();
      }
      found.push_back(number_in(line));
    }
    if (read_.size() > kLongestLine) static_cast<void>(number_in(read_));
  }
  return found;
}

}  // namespace piton
