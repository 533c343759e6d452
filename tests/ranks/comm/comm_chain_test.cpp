// ranks: 4
// within 40 s: rank 0: AS IT SHOULD BE
// Rank 3 does not join; rank 2 waits for it, rank 1 for rank 2, rank 0 for rank 1. Each message
// names rank 3, so that the first one printed names the cause.
#include <chrono>
#include <cstdio>
#include <thread>

#include "device/host_device.h"
#include "ranks/launched_world.h"

namespace piton {

void run() {
  HostDevice device;
  auto world = ranks::make_launched_world(device, {.timeout_seconds = 4});
  const int rank = world->rank();
  const auto pair = [&](int first) {
    const int ranks[] = {first, first + 1};
    return world->make_group(ranks, "pair " + std::to_string(first));
  };
  std::unique_ptr<Communicator> before;
  std::unique_ptr<Communicator> after;
  if (rank > 0) before = pair(rank - 1);
  if (rank < 3) after = pair(rank);
  auto stream = device.make_stream();
  const Tensor data = host_tensor(DType::kF32, {1000});
  if (rank == 3) {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    world->abort(6);
  }
  // Rank 2 begins to wait first and gives up first.
  std::this_thread::sleep_for(std::chrono::milliseconds(100 * (2 - rank)));
  std::string message;
  try {
    after->all_reduce(data, Reduction::kSum, *stream).wait();
  } catch (const Error& error) {
    message = error.what();
  }
  const char* wanted[] = {
      "for rank 1 (has joined none yet, it waits for rank 2, that one for rank 3);",
      "for rank 2 (has joined none yet, it waits for rank 3);",
      "for rank 3 (has joined none yet);"};
  const bool right = message.find(wanted[rank]) != std::string::npos;
  std::fprintf(stderr, "rank %d: %sAS IT SHOULD BE: %s\n", rank, right ? "" : "NOT ",
               message.c_str());
  std::this_thread::sleep_for(std::chrono::seconds(2));  // the others have words to say too
  world->abort(6);
}

}  // namespace piton

int main() {
  piton::run();  // does not come back
  return 1;
}
