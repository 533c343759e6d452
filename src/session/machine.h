// The resources of a run, chosen by api: ranks, device, kernels, memory, compute stream, threads,
// log.
#pragma once

#include <functional>

#include "base/log.h"
#include "base/sections.h"
#include "base/threads.h"
#include "comm/communicator.h"
#include "device/device.h"
#include "kernels/kernels.h"

namespace piton {

struct RecomputeChoice;
struct RunPlan;

struct Machine {
  World& world;
  Device& device;
  Kernels& kernels;
  Arena& arena;
  Stream& stream;
  ThreadPool& threads;
  Log& log;
  SectionObserver* sections = nullptr;  // told of the parts of a step; null: no one is interested
  // Measures the peak FLOP/s of this rank's threads for a dtype, with a loop of the widest
  // multiply-add instruction. Empty: cannot be measured.
  std::function<double(DType)> measure_peak_flops = {};
  // The same with operands loaded from cache; 0 if loads are not a separate limit.
  std::function<double(DType)> measure_loading_peak_flops = {};
  // What a run with RunPlan::memory_limit computes again in backward. On this rank alone: measures
  // kernels. Throws Error(kMemory) if nothing fits.
  std::function<RecomputeChoice(const RunPlan&, std::int64_t micro_batch)> choose_recompute = {};

  // What this rank's arena will hold at most in a run of the plan. Measures nothing and allocates
  // nothing. Empty: not known.
  std::function<MemoryCounts(const RunPlan&, std::int64_t micro_batch)> plan_memory = {};

  // The same with other ranks and kernels.
  Machine with(World& other_world, Kernels& other_kernels) const {
    return {other_world,
            device,
            other_kernels,
            arena,
            stream,
            threads,
            log,
            sections,
            measure_peak_flops,
            measure_loading_peak_flops,
            choose_recompute,
            plan_memory};
  }
};

}  // namespace piton
