#include "evaluate/python_sandbox.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kKeptOutput = 4096;  // bytes
// A Python starts within this time; the limit of lm-evaluation-harness begins after it.
constexpr std::chrono::seconds kStart(1);
// With all its files still on a slow disk.
constexpr std::chrono::seconds kFirstStart(30);

std::string reason(int error) { return std::generic_category().message(error); }

class Pipe {
 public:
  Pipe() {
    if (pipe2(ends_.data(), O_CLOEXEC) != 0)
      throw Error(Fault::kUsage, "--allow-code-execution: no pipe: {}", reason(errno));
  }
  ~Pipe() {
    for (int& end : ends_) shut(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void shut_write_end() { shut(ends_[1]); }

 private:
  static void shut(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
  std::array<int, 2> ends_ = {-1, -1};
};

// What a child writes until it closes its ends of the pipes, or until `end`.
struct Reading {
  std::string output;
  std::string report;
  bool in_time = false;
};

Reading read_all(const Pipe& output, const Pipe& report, Clock::time_point end) {
  Reading reading;
  std::array<pollfd, 2> ends = {pollfd{.fd = output.read_end(), .events = POLLIN, .revents = 0},
                                pollfd{.fd = report.read_end(), .events = POLLIN, .revents = 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return reading;
    const int ready = poll(ends.data(), ends.size(), static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR) return reading;
    if (ready <= 0) continue;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      std::array<char, 65536> part;
      const ssize_t size = read(ends[i].fd, part.data(), part.size());
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) {
        ends[i].fd = -1;
        continue;
      }
      std::string& text = i == 0 ? reading.output : reading.report;
      text.append(part.data(), static_cast<std::size_t>(size));
      if (text.size() > 2 * kKeptOutput) text.erase(0, text.size() - kKeptOutput);
    }
  }
  reading.in_time = true;
  return reading;
}

void wait_for(pid_t child) {
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// The lines that python3 of the PATH prints about itself: its file, and the folders of its library.
std::vector<std::string> python_lines() {
  constexpr const char* kProgram =
      "import os, sys\n"
      "print(os.path.realpath(getattr(sys, '_base_executable', '') or sys.executable))\n"
      "print(os.path.realpath(sys.base_prefix))\n"
      "print(os.path.realpath(sys.base_exec_prefix))\n";
  Pipe output;
  Pipe no_report;
  const pid_t child = fork();
  if (child == 0) {
    dup2(output.write_end(), 1);
    execlp("python3", "python3", "-I", "-c", kProgram, static_cast<char*>(nullptr));
    _exit(127);
  }
  if (child < 0)
    throw Error(Fault::kUsage, "--allow-code-execution: no process: {}", reason(errno));
  output.shut_write_end();
  no_report.shut_write_end();
  const Reading reading = read_all(output, no_report, Clock::now() + kFirstStart);
  if (!reading.in_time) kill(child, SIGKILL);
  wait_for(child);
  const std::string& text = reading.output;
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [end, _] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

class PlanMaker {
 public:
  SandboxPlan take() { return std::move(plan_); }

  // A path of the system, unless it is part of another one.
  void show(const fs::path& path) {
    const bool known = std::any_of(plan_.shown.begin(), plan_.shown.end(),
                                   [&](const std::string& one) { return is_inside(path, one); });
    std::error_code ignored;
    if (known || !fs::exists(path, ignored)) return;
    make_folders(path.parent_path());
    (fs::is_directory(path, ignored) ? plan_.folders : plan_.files).push_back(path.string());
    plan_.shown.push_back(path.string());
  }

  // A folder of the system that may be a link into /usr.
  void show_or_link(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_symlink(path, ignored))
      plan_.links.push_back({path.string(), fs::read_symlink(path, ignored).string()});
    else
      show(path);
  }

  void make_folders(const fs::path& path) {
    fs::path folder = "/";
    for (const fs::path& part : path.relative_path()) {
      folder /= part;
      plan_.folders.push_back(folder.string());
    }
  }

  void set_words(std::vector<std::string> words) { plan_.words = std::move(words); }

 private:
  SandboxPlan plan_;
};

[[noreturn]] void refuse(const SandboxReport& report) {
  const std::string why = reason(report.value);
  switch (report.kind) {
    case SandboxReport::kNamespaces:
      throw Error(
          Fault::kUsage,
          "--allow-code-execution: this kernel gives this user no user namespace ({}), and "
          "code is not run without one; allow them (sysctl user.max_user_namespaces, "
          "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), "
          "or leave the task out",
          why);
    case SandboxReport::kMounts:
      throw Error(Fault::kUsage,
                  "--allow-code-execution: this kernel or container lets no folder be mounted in a "
                  "user namespace ({}), and code is not run in sight of all files; run it where "
                  "mounts are allowed (Linux 5.12 or newer), or leave the task out",
                  why);
    case SandboxReport::kFilter:
      throw Error(
          Fault::kUsage,
          "--allow-code-execution: this kernel has no filter of system calls (seccomp: {}), "
          "and code is not run without one; leave the task out",
          why);
    default:
      throw Error(Fault::kUsage,
                  "--allow-code-execution: python3 does not start in a sandbox: {}; leave the task "
                  "out",
                  why);
  }
}

}  // namespace

PythonSandbox::PythonSandbox() {
  const std::vector<std::string> python = python_lines();
  if (python.size() != 3) {
    throw Error(
        Fault::kUsage,
        "--allow-code-execution: no python3 in the PATH that runs; install one, or leave the "
        "task out");
  }
  PlanMaker maker;
  for (const char* folder : {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"})
    maker.show_or_link(folder);
  for (const char* path : {"/etc/ld.so.cache", "/etc/alternatives", "/dev/null", "/dev/urandom"})
    maker.show(path);
  maker.show(python[1]);
  maker.show(python[2]);
  maker.show(python[0]);
  maker.make_folders("/work");
  maker.make_folders("/tmp");
  maker.set_words({python[0], "-I", "-B", "main.py"});
  plan_ = maker.take();
  const SandboxOutcome first = run("print('ready')\n", {.seconds = 30});
  if (first.output != "ready\n") {
    throw Error(Fault::kUsage,
                "--allow-code-execution: {} does not start in a sandbox: {}; leave the task out",
                python[0], first.output.substr(0, first.output.find('\n')));
  }
}

SandboxOutcome PythonSandbox::run(const std::string& program, const SandboxLimits& limits) const {
  if (std::ssize(program) > limits.file_bytes / 2)
    throw Error(Fault::kData, "code: got a program of {} bytes, wanted at most {}", program.size(),
                limits.file_bytes / 2);
  SandboxPlan plan = plan_;
  plan.program = program;
  Pipe output;
  Pipe report;
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) run_sandbox_child(plan, limits, parent, output.write_end(), report.write_end());
  if (child < 0)
    throw Error(Fault::kUsage, "--allow-code-execution: no process: {}", reason(errno));
  output.shut_write_end();
  report.shut_write_end();
  const auto time = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(limits.seconds) + kStart);
  Reading reading = read_all(output, report, Clock::now() + time);
  if (!reading.in_time) {
    kill(child, SIGKILL);
    // The program dies with its parent, and then nobody holds the pipes.
    read_all(output, report, Clock::now() + std::chrono::seconds(10));
  }
  wait_for(child);
  SandboxOutcome outcome{.timed_out = !reading.in_time};
  if (reading.output.size() > kKeptOutput)
    reading.output.erase(0, reading.output.size() - kKeptOutput);
  outcome.output = std::move(reading.output);
  if (outcome.timed_out) return outcome;
  SandboxReport ended;
  if (reading.report.size() < sizeof(ended)) {  // killed from outside
    outcome.signal = SIGKILL;
    return outcome;
  }
  std::copy_n(reading.report.data(), sizeof(ended), reinterpret_cast<char*>(&ended));
  if (ended.kind != SandboxReport::kEnded) refuse(ended);
  if (WIFSIGNALED(ended.value))
    outcome.signal = WTERMSIG(ended.value);
  else
    outcome.exit_code = WEXITSTATUS(ended.value);
  return outcome;
}

}  // namespace piton
