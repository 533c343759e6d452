// Resources of this process on this system: processors, memory, limits, disk space.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace piton {

// Sizes are in bytes. What the system does not tell, or does not limit, is absent.
struct HostFacts {
  std::string processor;                     // "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz"
  int cores = 0;                             // that this process may use (affinity)
  int online_cores = 0;                      // of the machine
  std::optional<double> core_quota;          // processors' worth of time that the container may use
  std::int64_t memory = 0;                   // of the machine
  std::int64_t available_memory = 0;         // without swapping
  std::optional<std::int64_t> memory_limit;  // of the container
  std::optional<std::int64_t> open_files;    // ulimit -n
  std::optional<std::int64_t> locked_memory;  // ulimit -l
  bool has_infiniband = false;
  std::optional<std::int64_t> shared_memory_free;  // of /dev/shm; absent: there is none
  std::filesystem::path folder;
  std::int64_t folder_free = 0;
  bool folder_writable = false;
  bool has_nvidia = false;  // a driver or a device of NVIDIA
};

// `root`: "/", or a folder with the files of an artificial system, for tests. Limits and disk space
// are those of this process in both cases.
HostFacts read_host_facts(const std::filesystem::path& root, const std::filesystem::path& folder);

}  // namespace piton
