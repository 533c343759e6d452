#include "cli/descriptors.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace piton::cli {

void open_standard_descriptors() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is taken: this one, since those before it are open by now.
    static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

}  // namespace piton::cli
