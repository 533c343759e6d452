// ranks: 2 4
// within 40 s: rank 0: AS IT SHOULD BE
// The last rank is late while the others make a group and allocate memory together. Their
// communication threads hang in MPI beyond the timeout, and return when the rank arrives: then they
// must not use destroyed objects.
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "device/host_device.h"
#include "ranks/launched_world.h"

namespace piton {

// What is on the stack where the wait is given up is not what the thread finds later.
[[gnu::noinline]] int overwrite_stack() {
  volatile char block[16384];
  for (volatile char& byte : block) byte = '\x5a';
  return block[77];
}

bool ends_with_peer_error(const std::string& wanted, const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  try {
    work();
  } catch (const Error& error) {
    return error.fault() == Fault::kPeer &&
           std::string(error.what()).find(wanted) != std::string::npos &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(7);
  }
  return false;
}

void run() {
  HostDevice device;
  auto world = ranks::make_launched_world(device, {.timeout_seconds = 3});
  std::vector<int> all;
  for (int rank = 0; rank < world->size(); ++rank) all.push_back(rank);
  auto group = world->make_group(all, "everyone");
  bool right = true;
  if (world->rank() == world->size() - 1) {
    std::this_thread::sleep_for(std::chrono::seconds(8));
    try {  // arrives late: the others' threads continue what they were asked for
      group->allocate_symmetric(1 << 16);
    } catch (const Error&) {
    }
    std::this_thread::sleep_for(std::chrono::seconds(2));
  } else {
    right = ends_with_peer_error("allocating 65536 bytes of symmetric memory",
                                 [&] { group->allocate_symmetric(1 << 16); });
    right = overwrite_stack() == '\x5a' && right;
    right = ends_with_peer_error("", [&] { world->make_group(all, "second"); }) && right;
    group.reset();
    std::this_thread::sleep_for(std::chrono::seconds(7));
  }
  std::fprintf(stderr, "rank %d: %sAS IT SHOULD BE\n", world->rank(), right ? "" : "NOT ");
  std::this_thread::sleep_for(std::chrono::seconds(1));
  world->abort(6);
}

}  // namespace piton

int main() {
  piton::run();  // does not come back
  return 1;
}
