// What `--kernels auto` chooses.
#pragma once

#include <string>

#include "api/engine.h"

namespace piton {

// What this machine has for the CUDA back end of this build.
struct GpuFacts {
  int devices = 0;               // that this process can use
  std::string library_obstacle;  // why its kernels cannot be made; "": they can
  std::string nccl_obstacle;     // why several ranks cannot be joined; "": they can, or it is one
};

struct AutomaticKernels {
  std::string kernels;   // "cuda" or "cpu"
  std::string obstacle;  // why the GPUs that are here are not used; "": they are, or there are none
};

// A GPU if this process has one, its kernels can be made, and it can join the other ranks; else the
// CPU. Ranks of mpirun that outnumber the GPUs of their host use its CPU. Ranks of other launchers
// cannot be joined without NCCL, so they stay with the GPU, whose error names NCCL.
AutomaticKernels automatic_kernels(const EngineOptions& options, const GpuFacts& gpu);

}  // namespace piton
