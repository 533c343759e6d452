// A machine of one process with CPU kernels, for tests that convert and verify.
#pragma once

#include "comm/communicator.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "session/machine.h"

namespace piton::test {

struct OneMachine {
  SilentLog log;
  HostDevice device;
  ThreadPool threads{2};
  std::unique_ptr<Kernels> kernels = make_cpu_kernels(threads);
  Arena arena{device, 1 << 20};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<World> world = make_single_world(device);
  Machine machine{*world, device, *kernels, arena, *stream, threads, log};
};

}  // namespace piton::test
