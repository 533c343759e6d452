// The resources of a run, chosen by api: ranks, device, kernels, memory, compute stream, threads,
// log.
#pragma once

#include "base/log.h"
#include "base/sections.h"
#include "base/threads.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "kernels/kernels.h"
#include "session/peak_meter.h"

namespace piton {

struct Machine {
  World& world;
  Device& device;
  Kernels& kernels;
  Arena& arena;
  Stream& stream;
  ThreadPool& threads;
  Log& log;
  SectionObserver* sections = nullptr;  // told of the parts of a step; null: no one is interested
  PeakMeter* peak = nullptr;            // null: the peak cannot be measured

  // The same with other ranks and kernels.
  Machine with(World& other_world, Kernels& other_kernels) const {
    return {other_world, device, other_kernels, arena, stream, threads, log, sections, peak};
  }
};

}  // namespace piton
