#include "cli/terminal/standard_input.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "base/error.h"
#include "base/files/files.h"

namespace piton::cli {

bool is_conversation() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

bool has_standard_input() {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode) || S_ISSOCK(status.st_mode);
}

std::string read_text(const std::string& path) {
  if (path != "-") return read_text_file(path);
  std::string text;
  char part[1 << 16];
  while (const std::size_t got = std::fread(part, 1, sizeof part, stdin)) text.append(part, got);
  if (std::ferror(stdin) != 0) throw Error(Fault::kData, "standard input: cannot be read");
  return text;
}

}  // namespace piton::cli
