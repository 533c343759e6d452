#include "doctor/findings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/amounts.h"

namespace piton {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

std::string size_text(std::int64_t bytes) {
  const double size = mebibytes(bytes);
  return size < 1024 ? fmt::format("{:.0f} MiB", size) : fmt::format("{:.1f} GiB", size / 1024);
}

Finding instruction_sets(const InstallationFacts& installation) {
  Finding found{.about = "instruction sets"};
  const auto& sets = installation.instruction_sets;
  if (sets.empty()) {
    found.health = Health::kMissing;
    found.text = "older than x86-64-v2 (SSE4.2)";
    found.fix = "use another machine, or --kernels reference for very small models";
    return found;
  }
  found.text = fmt::format("{}; the kernels use {}", fmt::join(sets, ", "), installation.chosen);
  if (sets.size() == 1 && sets.front() == "x86-64-v2") {
    found.health = Health::kWarning;
    found.fix =
        "a processor with AVX2 (x86-64-v3) is several times as fast; in a virtual machine, "
        "pass the host's processor through (-cpu host)";
  }
  return found;
}

Finding cores(const HostFacts& host) {
  Finding found{.about = "cores"};
  found.text = fmt::format("{} of {} may be used", host.cores, host.online_cores);
  if (!host.core_quota) return found;
  found.text += fmt::format("; the container has the time of {:.1f}", *host.core_quota);
  const int whole = std::max(1, static_cast<int>(std::floor(*host.core_quota)));
  if (whole >= host.cores) return found;
  found.health = Health::kWarning;
  found.fix = fmt::format(
      "threads would be stopped in the middle of their work: give --threads {}, or give the "
      "container more (docker run --cpus {})",
      whole, host.cores);
  return found;
}

Finding memory(const HostFacts& host) {
  Finding found{.about = "memory"};
  found.text =
      fmt::format("{} of {} available", size_text(host.available_memory), size_text(host.memory));
  std::int64_t usable = host.available_memory;
  if (host.memory_limit) {
    found.text += fmt::format("; the container may use {}", size_text(*host.memory_limit));
    usable = std::min(usable, *host.memory_limit);
  }
  // GPT-2 124M takes 16 bytes a parameter and as much again for what a step holds.
  if (usable < 4 * kGiB) {
    found.health = Health::kWarning;
    found.fix =
        "piton plan tells what a model takes; end other programs, or give the container "
        "more (docker run --memory)";
  }
  return found;
}

Finding open_files(const HostFacts& host) {
  // Three for each rank of a host and those of the corpora, of which blends have some hundred.
  constexpr std::int64_t kEnough = 1024;
  Finding found{.about = "open files"};
  found.text =
      host.open_files ? fmt::format("at most {} (ulimit -n)", *host.open_files) : "not limited";
  if (host.open_files && *host.open_files < kEnough) {
    found.health = Health::kWarning;
    found.fix = "ulimit -n 4096, before the run, in the same shell";
  }
  return found;
}

Finding locked_memory(const HostFacts& host) {
  Finding found{.about = "locked memory"};
  found.text = host.locked_memory
                   ? fmt::format("at most {} (ulimit -l)", size_text(*host.locked_memory))
                   : "not limited";
  if (host.has_infiniband && host.locked_memory && *host.locked_memory < kGiB) {
    found.health = Health::kWarning;
    found.text += "; InfiniBand needs more";
    found.fix =
        "ulimit -l unlimited (its hard limit: \"* - memlock unlimited\" in "
        "/etc/security/limits.conf, then log in again)";
  }
  return found;
}

Finding shared_memory(const HostFacts& host) {
  Finding found{.about = "shared memory"};
  if (!host.shared_memory_free) {
    found.health = Health::kWarning;
    found.text = "no /dev/shm: ranks of mpirun cannot share memory; those of piton launch can";
    found.fix = "mount -t tmpfs -o size=50% tmpfs /dev/shm, or start ranks by piton launch";
    return found;
  }
  found.text = fmt::format("{} free in /dev/shm", size_text(*host.shared_memory_free));
  // Gradients of GPT-2 124M in fp32, once.
  if (*host.shared_memory_free < 512 * kMiB) {
    found.health = Health::kWarning;
    found.fix =
        "several ranks of mpirun on a host need more, those of piton launch do not: mount -o "
        "remount,size=50% /dev/shm (in a container: docker run --shm-size 8g)";
  }
  return found;
}

Finding disk(const HostFacts& host) {
  Finding found{.about = "disk"};
  found.text = fmt::format("{} free in {}", size_text(host.folder_free), host.folder.string());
  if (!host.folder_writable) {
    found.health = Health::kWarning;
    found.text += ", which cannot be written to";
    found.fix = "start from a folder of yours, or name one with --save";
  } else if (host.folder_free < 4 * kGiB) {
    found.health = Health::kWarning;
    found.fix =
        "a checkpoint of GPT-2 124M takes 1.5 GiB: make room, or name another disk with "
        "--save";
  }
  return found;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "4.1.4" of "Open MPI v4.1.4, package: ..." and of "mpirun (Open MPI) 4.1.4".
std::string version_in(const std::string& text) {
  constexpr const char* kDigits = "0123456789";
  for (std::size_t begin = text.find_first_of(kDigits); begin != text.npos;) {
    // Two or three numbers with points between.
    std::size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
    int numbers = 1;
    while (numbers < 3 && end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
      end = std::min(text.find_first_not_of(kDigits, end + 1), text.size());
      ++numbers;
    }
    if (numbers > 1) return text.substr(begin, end - begin);
    begin = text.find_first_of(kDigits, end);
  }
  return "";
}

Finding mpi(const InstallationFacts& installation, const LauncherFacts& launcher) {
  Finding found{.about = "MPI"};
  if (installation.mpi_library.empty()) {
    found.text = "not in this build, and not needed: piton launch starts ranks";
    return found;
  }
  const std::string library = version_in(installation.mpi_library);
  found.text = fmt::format("library: {}", installation.mpi_library);
  if (const std::size_t comma = found.text.find(','); comma != std::string::npos) {
    found.text.resize(comma);
  }
  if (launcher.path.empty()) {
    found.text += "; no mpirun on the path, and none is needed: piton launch starts ranks";
    return found;
  }
  found.text += fmt::format("; {}: {}", launcher.path, launcher.version);
  const std::string started_by = version_in(launcher.version);
  const bool is_open_mpi = launcher.version.find("Open MPI") != std::string::npos ||
                           launcher.version.find("OpenRTE") != std::string::npos;
  const auto major = [](const std::string& version) {
    return version.substr(0, version.find('.'));
  };
  if (!is_open_mpi || major(started_by) != major(library)) {
    found.health = Health::kWarning;
    found.fix = fmt::format(
        "this launcher does not join the processes of Open MPI {}: put that one's mpirun first on "
        "PATH (command -v -a mpirun lists all)",
        library);
  }
  return found;
}

Finding gpu(const HostFacts& host, const InstallationFacts& installation) {
  Finding found{.about = "GPU"};
  if (installation.cuda_built && !installation.cuda_obstacle.empty()) {
    found.text =
        fmt::format("this build has CUDA, and cannot use it: {}", installation.cuda_obstacle);
    // Without a GPU nobody misses the driver.
    if (!host.has_nvidia && installation.cuda_devices == 0) return found;
    found.health = Health::kWarning;
    found.fix =
        "install the driver of NVIDIA, and the libraries of the CUDA version named here (folders "
        "on "
        "LD_LIBRARY_PATH); in a container: docker run --gpus all; --kernels cpu works";
  } else if (installation.cuda_devices > 0) {
    found.text = fmt::format("{} for --kernels cuda", installation.cuda_devices);
    if (!installation.nccl_obstacle.empty()) {
      found.text += fmt::format("; several ranks cannot be joined: {}", installation.nccl_obstacle);
      found.health = installation.cuda_devices > 1 ? Health::kWarning : Health::kOk;
      found.fix = found.health == Health::kOk ? "" : "apt-get install libnccl2; one process works";
    }
  } else if (installation.cuda_built) {
    found.health = Health::kWarning;
    found.text = "this build has CUDA, and no GPU answers";
    found.fix = "nvidia-smi says why; in a container: docker run --gpus all; --kernels cpu works";
  } else if (host.has_nvidia) {
    found.health = Health::kWarning;
    found.text = "one of NVIDIA is here, and this build has no CUDA";
    found.fix = "cmake --preset cuda && cmake --build --preset cuda (needs nvcc)";
  } else {
    found.text = "none; processors do the work";
  }
  return found;
}

Finding libraries(const InstallationFacts& installation) {
  Finding found{.about = "libraries"};
  found.text = "gzip, Zstandard, bzip2 and xz; ";
  if (installation.parquet) {
    found.text += "Apache Arrow for Parquet";
    return found;
  }
  found.health = Health::kWarning;
  found.text += "no Apache Arrow: Parquet cannot be read";
  found.fix =
      "apt-get install python3-pip, then make: it fetches Apache Arrow into the build folder";
  return found;
}

Finding build_of(const BuildFacts& build) {
  Finding found{.about = "build"};
  found.text = fmt::format("piton {}; {}", build.version, build.build);
  if (!build.build.starts_with("Release")) {
    found.health = Health::kWarning;
    found.fix = "not optimized: cmake --preset cpu && cmake --build --preset cpu";
  }
  return found;
}

}  // namespace

std::string_view name(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarning:
      return "warning";
    case Health::kMissing:
      return "missing";
  }
  return "";
}

std::vector<Finding> findings(const HostFacts& host, const InstallationFacts& installation,
                              const LauncherFacts& launcher, const BuildFacts& build) {
  return {build_of(build),
          {.about = "processor", .text = host.processor.empty() ? "unknown" : host.processor},
          instruction_sets(installation),
          cores(host),
          memory(host),
          open_files(host),
          locked_memory(host),
          shared_memory(host),
          disk(host),
          mpi(installation, launcher),
          gpu(host, installation),
          libraries(installation)};
}

}  // namespace piton
