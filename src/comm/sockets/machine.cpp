#include "comm/sockets/machine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace piton {

std::string machine_name() {
  std::ifstream stream("/proc/sys/kernel/random/boot_id");
  std::string boot;
  stream >> boot;
  std::array<char, 64> processes{};  // "pid:[4026531836]"
  const ssize_t length = ::readlink("/proc/self/ns/pid", processes.data(), processes.size());
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{} {} {} {}", host.data(), boot,
                     std::string_view(processes.data(), length > 0 ? length : 0), ::geteuid());
}

}  // namespace piton
