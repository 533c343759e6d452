// ranks: 2
// within 20 s: rank 0: AS IT SHOULD BE
// The ranks call the same collective with different counts of rows: no rank gets a result. Which
// reductions they ask for is compared in the same way.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "device/host_device.h"
#include "ranks/launched_world.h"

namespace piton {

void run() {
  HostDevice device;
  auto world = ranks::make_launched_world(device, {.timeout_seconds = 5});
  const int ranks[] = {0, 1};
  auto group = world->make_group(ranks, "everyone");
  auto stream = device.make_stream();
  const Tensor rows = host_tensor(DType::kF32, {10, 100});
  const Tensor out = host_tensor(DType::kF32, {10, 100});
  RowCounts counts(2);
  counts.at(0, 1) = 2 + world->rank();
  std::string message;
  try {
    group->all_to_all_rows(out, rows, counts, *stream).wait();
  } catch (const Error& error) {
    message = error.what();
  }
  const bool right = message.find("the ranks disagree on collective number 0") != std::string::npos;
  std::fprintf(stderr, "rank %d: %sAS IT SHOULD BE: %s\n", world->rank(), right ? "" : "NOT ",
               message.c_str());
  std::this_thread::sleep_for(std::chrono::seconds(1));  // the other has words to say too
  world->abort(6);
}

}  // namespace piton

int main() {
  piton::run();  // does not come back
  return 1;
}
