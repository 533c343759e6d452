// A machine of one process for tests that load or train models: two threads of the host, no log.
#pragma once

#include <functional>
#include <memory>

#include "base/log.h"
#include "comm/communicator.h"
#include "device/host_device.h"
#include "kernels/cpu/kernels.h"
#include "session/machine.h"
#include "support/instruction_sets.h"

namespace piton::test {

struct HostMachine {
  using MakeKernels = std::function<std::unique_ptr<Kernels>(ThreadPool&)>;

  explicit HostMachine(const MakeKernels& make_kernels = cpu_kernels)
      : kernels(make_kernels(threads)) {}

  static std::unique_ptr<Kernels> cpu_kernels(ThreadPool& threads) {
    return make_cpu_kernels(threads, test::chosen_isa());
  }

  HostDevice device;
  SilentLog log;
  ThreadPool threads{2};
  std::unique_ptr<Kernels> kernels;
  Arena arena{device, 1 << 20};
  std::unique_ptr<Stream> stream = device.make_stream();
  std::unique_ptr<World> world = make_single_world(device);
  Machine machine{*world, device, *kernels, arena, *stream, threads, log};
};

}  // namespace piton::test
