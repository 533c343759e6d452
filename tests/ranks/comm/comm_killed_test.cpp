// ranks: 2 4
// within 10 s: rank 0: AS IT SHOULD BE
// The last rank is killed while the others wait for it: they detect it, report it and end.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "device/host_device.h"
#include "ranks/launched_world.h"

namespace piton {

void run() {
  signal(SIGTERM, SIG_IGN);  // mpirun's, which the program would answer by saving
  HostDevice device;
  auto world = ranks::make_launched_world(device, {.timeout_seconds = 600});
  std::vector<int> all;
  for (int rank = 0; rank < world->size(); ++rank) all.push_back(rank);
  auto group = world->make_group(all, "everyone");
  const int last = world->size() - 1;
  auto stream = device.make_stream();
  const Tensor data = host_tensor(DType::kF32, {3'000'000});
  for (int k = 0; k < 3; ++k) group->all_reduce(data, Reduction::kSum, *stream).wait();
  if (world->rank() == last) kill(getpid(), SIGKILL);
  const Event received = group->receive(data, last, 7, *stream);
  const Event sent = group->send(data, last, 8, *stream);  // larger than the space for messages
  std::string message;
  try {
    if (world->rank() == 0) {
      received.wait();  // one waits for a message, the others in a collective
    } else {
      group->all_reduce(data, Reduction::kSum, *stream).wait();
    }
  } catch (const Error& error) {
    message = error.what();
    if (error.fault() != Fault::kPeer) message = "of the wrong fault";
  }
  // Or a survivor that noticed first has ended already.
  bool right = message.find("comm: rank " + std::to_string(last) + " (process ") == 0 ||
               message.find("ended the run with code 6") != std::string::npos;
  try {
    sent.wait();  // a message that is under way fails too
    right = false;
  } catch (const Error& error) {
    right = right && error.fault() == Fault::kPeer;
  }
  std::fprintf(stderr, "rank %d: %sAS IT SHOULD BE: %s\n", world->rank(), right ? "" : "NOT ",
               message.c_str());
  world->abort(6);
}

}  // namespace piton

int main() {
  piton::run();  // does not come back
  return 1;
}
