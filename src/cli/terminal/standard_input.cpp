#include "cli/terminal/standard_input.h"

#include <sys/stat.h>
#include <unistd.h>

namespace piton::cli {

bool is_conversation() { return ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1; }

bool has_standard_input() {
  struct stat status {};
  if (::fstat(STDIN_FILENO, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISREG(status.st_mode) || S_ISSOCK(status.st_mode);
}

}  // namespace piton::cli
