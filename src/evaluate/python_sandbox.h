// Runs programs in Python that nobody has read: without network, other files, other processes, or a
// way to run on.
#pragma once

#include <string>

#include "evaluate/sandbox_child.h"

namespace piton {

struct SandboxOutcome {
  bool timed_out = false;
  int exit_code = 0;   // of a program that ended by itself
  int signal = 0;      // that ended it; 0: none
  std::string output;  // the end of what it wrote to standard output and standard error
};

class PythonSandbox {
 public:
  // Finds python3 in the PATH and runs a first program. Throws Error(kUsage) if there is none, or
  // if the kernel does not give this user what a sandbox needs, with the reason.
  PythonSandbox();

  // Runs `program` as /work/main.py, where it may write files. Waits for its end, and kills it
  // after `limits.seconds` and one more for its start. Throws Error(kUsage) if the sandbox cannot
  // be made, Error(kData) for a program that is larger than limits.file_bytes.
  SandboxOutcome run(const std::string& program, const SandboxLimits& limits) const;

 private:
  SandboxPlan plan_;  // without a program
};

}  // namespace piton
