#include "cli/terminal/descriptors.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <initializer_list>

namespace piton::cli {

void open_standard_descriptors() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number is taken: this one, since those before it are open by now.
    static_cast<void>(::open("/dev/null", O_RDWR));
  }
}

bool replace_unread_output() {
  bool replaced = false;
  for (std::FILE* stream : {stdout, stderr}) {
    pollfd watched{.fd = ::fileno(stream), .events = 0, .revents = 0};
    if (::poll(&watched, 1, 0) != 1 || (watched.revents & (POLLERR | POLLHUP)) == 0) continue;
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) continue;
    ::dup2(nowhere, watched.fd);
    ::close(nowhere);
    std::fflush(stream);
    std::clearerr(stream);
    replaced = true;
  }
  return replaced;
}

}  // namespace piton::cli
