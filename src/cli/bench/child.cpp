#include "cli/bench/child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/files/files.h"
#include "base/trimmed.h"

namespace piton::cli {
namespace {

int code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

ChildResult run_child(const std::vector<std::string>& words, const std::filesystem::path& folder,
                      std::atomic<pid_t>& running) {
  create_folders(folder);
  const std::string output = folder / "output", errors = folder / "errors";
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND;
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), kNew, 0640);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, errors.c_str(), kNew, 0640);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int failure =
      posix_spawnp(&child, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failure != 0) {
    return {kNotStarted, "", fmt::format("{}: {}", words[0], system_message(failure))};
  }
  running = child;
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      throw Error(Fault::kUsage, "{}: cannot be waited for: {}", words[0], system_message(errno));
    }
  }
  running = 0;
  return {code_of(status), read_text_file(output), read_text_file(errors)};
}

std::string last_line(const std::string& errors) {
  std::string last, of_piton;
  for (std::size_t at = 0; at < errors.size();) {
    const std::size_t end = std::min(errors.find('\n', at), errors.size());
    const std::string_view line = trimmed(std::string_view(errors).substr(at, end - at));
    if (!line.empty()) last = line;
    if (line.starts_with("piton ")) of_piton = line;
    at = end + 1;
  }
  return of_piton.empty() ? last : of_piton;
}

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe"); }

}  // namespace piton::cli
