// ranks: 2 4
// within 30 s: rank 0: AS IT SHOULD BE
// The last rank does not join a collective, then a message: the others report the missing rank.
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "device/host_device.h"
#include "ranks/launched_world.h"

namespace piton {

void run() {
  HostDevice device;
  auto world = ranks::make_launched_world(device, {.timeout_seconds = 4});
  std::vector<int> all;
  for (int rank = 0; rank < world->size(); ++rank) all.push_back(rank);
  auto group = world->make_group(all, "everyone");
  const int last = world->size() - 1;
  auto stream = device.make_stream();
  const Tensor data = host_tensor(DType::kF32, {1000});
  group->all_reduce(data, Reduction::kSum, *stream).wait();
  if (world->rank() == last) {
    std::this_thread::sleep_for(std::chrono::seconds(9));
    world->abort(6);
  }
  std::string message;
  try {
    group->all_reduce(data, Reduction::kSum, *stream).wait();
  } catch (const Error& error) {
    message = error.what();
    if (error.fault() != Fault::kPeer) message = "of the wrong fault";
  }
  const std::string wanted = "comm: group everyone: all-reduce number 1 of fp32 [1000] has waited";
  bool right =
      message.find(wanted) == 0 &&
      message.find("rank " + std::to_string(last) + " (last joined number 0)") != std::string::npos;
  // What comes later fails at once, for the same reason.
  const auto start = std::chrono::steady_clock::now();
  try {
    group->receive(data, last, 0, *stream).wait();
    right = false;
  } catch (const Error& error) {
    right = right && std::string(error.what()).find(wanted) == 0 &&
            std::chrono::steady_clock::now() - start < std::chrono::seconds(1);
  }
  std::fprintf(stderr, "rank %d: %sAS IT SHOULD BE: %s\n", world->rank(), right ? "" : "NOT ",
               message.c_str());
  std::this_thread::sleep_for(std::chrono::seconds(1));  // the others have words to say too
  world->abort(6);
}

}  // namespace piton

int main() {
  piton::run();  // does not come back
  return 1;
}
