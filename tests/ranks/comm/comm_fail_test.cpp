// ranks: 2 4
// within 12 s: rank 0: AS IT SHOULD BE
// The last rank calls fail() during a collective: its own wait ends at once, so that its objects
// can be destroyed, and the others report the reason and its exit code.
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "device/host_device.h"
#include "ranks/launched_world.h"
#include "tensor/arena.h"

namespace piton {

void run() {
  signal(SIGTERM, SIG_IGN);  // mpirun's, once the first rank is gone
  HostDevice device;
  auto world = ranks::make_launched_world(device, {.timeout_seconds = 600});
  std::vector<int> all;
  for (int rank = 0; rank < world->size(); ++rank) all.push_back(rank);
  auto group = world->make_group(all, "everyone");
  auto stream = device.make_stream();
  bool right = true;
  std::string message;
  {
    Arena arena(device);
    Tensor data = arena.allocate(DType::kF32, {1000}, MemoryKind::kWorkspace);
    group->all_reduce(data, Reduction::kSum, *stream).wait();
    if (world->rank() == world->size() - 1) {
      const Event open = group->all_reduce(data, Reduction::kSum, *stream);
      arena.hold(data, open.fence());
      const auto start = std::chrono::steady_clock::now();
      world->fail(3, "corpus: made up for this test");
      try {
        open.wait();
        right = false;
      } catch (const Error& error) {
        message = error.what();
      }
      data = {};
      right = right && message.find("made up") != std::string::npos &&
              std::chrono::steady_clock::now() - start < std::chrono::seconds(2);
    } else {
      try {
        for (;;) group->receive(data, world->size() - 1, 3, *stream).wait();
      } catch (const Error& error) {
        message = error.what();
        // A survivor that noticed first, and failed as well, counts too.
        right = message.find("ended the run with code 3: corpus") != std::string::npos ||
                message.find("ended the run with code 6") != std::string::npos;
        world->fail(6, message);
      }
    }
  }  // the arena goes before the world, and waits for nothing
  std::fprintf(stderr, "rank %d: %sAS IT SHOULD BE: %s\n", world->rank(), right ? "" : "NOT ",
               message.c_str());
  world->abort(6);
}

}  // namespace piton

int main() {
  piton::run();  // does not come back
  return 1;
}
