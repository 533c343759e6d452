// What this build can do on this machine, for those that ask before they run anything.
#pragma once

#include <string>
#include <vector>

namespace piton {

struct InstallationFacts {
  std::vector<std::string>
      instruction_sets;  // that this machine has, of those there are kernels for
  std::string chosen;    // of them, for the log; "" if the machine has none
  std::string mpi_library;
  bool cuda_built = false;
  int cuda_devices = 0;
  bool parquet = false;
};

// `isa`: the instruction set that is forced, "" for none (PITON_ISA). Throws Error(kUsage) if it is
// unknown or not on this machine.
InstallationFacts installation_facts(const std::string& isa);

}  // namespace piton
