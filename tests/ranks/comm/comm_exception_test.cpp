// ranks: 2 4
// within 10 s: rank 0: AS IT SHOULD BE
// An exception on one rank that destroys its world hangs neither that rank nor the others.
#include <signal.h>

#include <cstdio>
#include <vector>

#include "device/host_device.h"
#include "ranks/launched_world.h"

namespace piton {

void work() {
  HostDevice device;
  auto world = ranks::make_launched_world(device, {.timeout_seconds = 600});
  std::vector<int> all;
  for (int rank = 0; rank < world->size(); ++rank) all.push_back(rank);
  auto group = world->make_group(all, "everyone");
  auto stream = device.make_stream();
  const Tensor data = host_tensor(DType::kF32, {1000});
  group->all_reduce(data, Reduction::kSum, *stream).wait();
  if (world->rank() == world->size() - 1) {
    const Event open = group->all_reduce(data, Reduction::kSum, *stream);
    throw Error(Fault::kData, "corpus: made up for this test");
  }
  try {
    for (;;) group->all_reduce(data, Reduction::kSum, *stream).wait();
  } catch (const Error& error) {
    const std::string message = error.what();
    // A survivor that noticed first, and let its own exception go, counts as well.
    const bool right = message.find("ended the run with code 6") != std::string::npos;
    std::fprintf(stderr, "rank %d: %sAS IT SHOULD BE: %s\n", world->rank(), right ? "" : "NOT ",
                 message.c_str());
    throw;
  }
}

int run() {
  signal(SIGTERM, SIG_IGN);  // mpirun's, once the first rank is gone
  try {
    work();
  } catch (const Error& error) {
    return static_cast<int>(error.fault());
  }
  return 0;
}

}  // namespace piton

int main() { return piton::run(); }
