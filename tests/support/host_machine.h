// A machine of one process for tests that load models: two threads of the host, no log.
#pragma once

#include "base/log.h"
#include "comm/communicator.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "session/machine.h"

namespace piton::test {

struct HostMachine {
  HostDevice device;
  SilentLog log;
  ThreadPool threads{2};
  std::unique_ptr<Kernels> kernels = make_cpu_kernels(threads);
  Arena arena{device};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<World> world = make_single_world(device);
  Machine machine{*world, device, *kernels, arena, *stream, threads, log};
};

}  // namespace piton::test
