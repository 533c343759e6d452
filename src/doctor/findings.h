// Checks whether a machine has what Piton needs, and tells how to fix what is missing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/installation.h"
#include "doctor/host_facts.h"

namespace piton {

enum class Health {
  kOk,
  kWarning,  // Piton runs, but slower, or some of it does not
  kMissing,  // Piton does not run
};
std::string_view name(Health health);  // "ok", "warning", "missing"

struct Finding {
  std::string about;  // "instruction sets"
  Health health = Health::kOk;
  std::string text;  // what was found
  std::string fix;   // a command or an instruction that fixes it; "" if nothing is wrong
};

struct LauncherFacts {
  std::string path;     // of mpirun; "" if there is none on the path
  std::string version;  // the first line of what it says, "mpirun (Open MPI) 4.1.4"
};

struct BuildFacts {
  std::string version;  // "0.1.0, commit 1a2b3c4d5e6f"
  std::string build;    // "Release, GNU 12.2.0"
};

// One finding for each check. The checks and their order are always the same.
std::vector<Finding> findings(const HostFacts& host, const InstallationFacts& installation,
                              const LauncherFacts& launcher, const BuildFacts& build);

}  // namespace piton
