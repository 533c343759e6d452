#include "doctor/host_facts.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "base/files/system_files.h"
#include "base/threads.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// Version 2: cpu.max, "150000 100000" or "max 100000"; version 1: two files.
std::optional<double> core_quota(const fs::path& root) {
  std::optional<double> least;
  const auto take = [&](std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return;
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    least = std::min(least.value_or(cores), cores);
  };
  for (const std::string& text : group_texts(root, "cpu", "cpu.max")) {
    const std::size_t space = std::min(text.find(' '), text.size());
    take(leading_number(text.substr(0, space)), leading_number(text.substr(space)));
  }
  const auto quotas = group_texts(root, "cpu", "cpu.cfs_quota_us");
  const auto periods = group_texts(root, "cpu", "cpu.cfs_period_us");
  for (std::size_t i = 0; i < std::min(quotas.size(), periods.size()); ++i) {
    take(leading_number(quotas[i]), leading_number(periods[i]));
  }
  return least;
}

std::optional<std::int64_t> soft_limit(int resource) {
  rlimit limit{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<std::int64_t>(limit.rlim_cur);
}

std::optional<std::int64_t> free_bytes(const fs::path& folder) {
  struct statvfs space {};
  if (::statvfs(folder.c_str(), &space) != 0) return std::nullopt;
  return static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
}

bool has_entries(const fs::path& folder) {
  std::error_code error;
  return fs::directory_iterator(folder, error) != fs::directory_iterator();
}

}  // namespace

HostFacts read_host_facts(const fs::path& root, const fs::path& folder) {
  HostFacts facts;
  const std::string cpu_info = system_text(root / "proc/cpuinfo");
  facts.processor = value_of_line(cpu_info, "model name");
  // Linux names no models of ARM.
  if (const std::string part = value_of_line(cpu_info, "CPU part");
      facts.processor.empty() && !part.empty())
    facts.processor = fmt::format("ARM, implementer {}, part {}",
                                  value_of_line(cpu_info, "CPU implementer"), part);
  facts.cores = static_cast<int>(available_cores().size());
  facts.online_cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  facts.core_quota = core_quota(root);
  const HostMemory memory = host_memory(root);
  facts.memory = memory.all;
  facts.available_memory = memory.available;
  facts.memory_limit = memory.limit;
  facts.open_files = soft_limit(RLIMIT_NOFILE);
  facts.locked_memory = soft_limit(RLIMIT_MEMLOCK);
  facts.has_infiniband = has_entries(root / "sys/class/infiniband");
  facts.shared_memory_free = free_bytes(root / "dev/shm");
  facts.folder = folder;
  facts.folder_free = free_bytes(folder).value_or(0);
  facts.folder_writable = ::access(folder.c_str(), W_OK) == 0;
  std::error_code error;
  facts.has_nvidia = fs::exists(root / "proc/driver/nvidia/version", error) ||
                     fs::exists(root / "dev/nvidiactl", error);
  return facts;
}

}  // namespace piton
