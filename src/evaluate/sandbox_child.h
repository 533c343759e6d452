// The child process of a sandbox: leaves the namespaces of its parent, sees a few folders, and runs
// a program there.
//
// It is forked from a program with threads, so nothing here allocates: all texts are made before.
//
// What holds in it, by the kernel:
//   user, pid, network, IPC and host name are separate (namespaces(7)); there are no sockets
//   root folder: a tmpfs of `file_bytes`, in which `shown` paths appear, read-only
//   time and memory: limits of the process (getrlimit(2)); a parent that dies takes it along
//   one process with one thread: fork, clone and everything that could undo the above are refused
//   (seccomp(2))
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace piton {

struct SandboxLimits {
  double seconds = 3;                                 // of the clock
  std::int64_t memory_bytes = std::int64_t{1} << 30;  // of addresses
  std::int64_t file_bytes = std::int64_t{16} << 20;   // of all files that it writes
};

struct SandboxPlan {
  struct Link {
    std::string path;
    std::string target;
  };
  std::vector<std::string> folders;  // to make, parents first: "/usr", "/work"
  std::vector<std::string> files;    // empty ones, that files are shown at
  std::vector<std::string> shown;    // paths of the system, at the same place
  std::vector<Link> links;
  std::vector<std::string> words;  // the program and its arguments
  std::string program;             // contents of /work/main.py
};

// Records that the child writes to its report: how far it came.
struct SandboxReport {
  enum Kind : std::int32_t {
    kEnded,       // value: a status of waitpid(2)
    kNamespaces,  // these could not be made; value: errno
    kMounts,
    kLimits,
    kFilter,
    kProgram,
  };
  std::int32_t kind = kEnded;
  std::int32_t value = 0;
};

// `parent`: the process that forked. Standard output and standard error go to `output`, records to
// `report`; both are file descriptors. Returns never.
[[noreturn]] void run_sandbox_child(const SandboxPlan& plan, const SandboxLimits& limits,
                                    int parent, int output, int report);

}  // namespace piton
