// What this build can use on this machine, for programs that ask before they start a run.
#pragma once

#include <string>
#include <vector>

namespace piton {

struct InstallationFacts {
  std::vector<std::string> instruction_sets;  // on this machine, with kernels in this build
  std::string chosen;       // the one that kernels use, as the log names it; "" if there is none
  std::string mpi_library;  // "": this build has none
  bool cuda_built = false;
  int cuda_devices = 0;
  std::string
      cuda_obstacle;  // why `--kernels cuda` does not work in this build, here; "" if it does
  std::string nccl_obstacle;  // why several ranks with a GPU each do not
  bool parquet = false;
};

// `isa`: use this instruction set (PITON_ISA); "" chooses. Throws Error(kUsage) if it is unknown or
// not on this machine.
InstallationFacts installation_facts(const std::string& isa);

}  // namespace piton
