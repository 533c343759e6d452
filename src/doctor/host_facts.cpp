#include "doctor/host_facts.h"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/threads.h"

namespace piton {
namespace {

namespace fs = std::filesystem;

// Files of /proc and /sys say nothing of their size; "" where there is none.
std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<std::int64_t> number_of(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\n"), text.size());
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + begin) return std::nullopt;
  return value;
}

// The value after "KEY:" in `text`, lines of keys and values; "" if the key is not there.
std::string value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::size_t end = line.find_last_not_of(" \t", colon - 1);
    if (line.substr(0, end + 1) != key) continue;
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

// The files `name` of this process's control group and of those above it: each limits it. Version 2
// has one tree, version 1 one for each `controller`.
std::vector<std::string> group_files(const fs::path& root, const std::string& controller,
                                     const std::string& name) {
  std::istringstream groups(text_of(root / "proc/self/cgroup"));
  std::vector<std::string> found;
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string named = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = named == ",,";
    if (!unified && named.find("," + controller + ",") == std::string::npos) continue;
    const fs::path tree = unified ? root / "sys/fs/cgroup" : root / "sys/fs/cgroup" / controller;
    // Inside a container the path may be that outside of it: then the tree's root is the group.
    fs::path path = fs::path(line.substr(second + 1)).relative_path();
    while (true) {
      if (std::string text = text_of(tree / path / name); !text.empty()) found.push_back(text);
      if (path.empty()) break;
      path = path.parent_path();
    }
  }
  return found;
}

// Version 2: cpu.max, "150000 100000" or "max 100000"; version 1: two files.
std::optional<double> core_quota(const fs::path& root) {
  std::optional<double> least;
  const auto take = [&](std::optional<std::int64_t> quota, std::optional<std::int64_t> period) {
    if (!quota || !period || *quota <= 0 || *period <= 0) return;
    const double cores = static_cast<double>(*quota) / static_cast<double>(*period);
    least = std::min(least.value_or(cores), cores);
  };
  for (const std::string& text : group_files(root, "cpu", "cpu.max")) {
    const std::size_t space = std::min(text.find(' '), text.size());
    take(number_of(text.substr(0, space)), number_of(text.substr(space)));
  }
  const auto quotas = group_files(root, "cpu", "cpu.cfs_quota_us");
  const auto periods = group_files(root, "cpu", "cpu.cfs_period_us");
  for (std::size_t i = 0; i < std::min(quotas.size(), periods.size()); ++i) {
    take(number_of(quotas[i]), number_of(periods[i]));
  }
  return least;
}

std::optional<std::int64_t> memory_limit(const fs::path& root, std::int64_t memory) {
  std::optional<std::int64_t> least;
  for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
    for (const std::string& text : group_files(root, "memory", name)) {
      const auto limit = number_of(text);  // "max" is no number, and version 1 has a huge one
      if (limit && *limit < memory) least = std::min(least.value_or(*limit), *limit);
    }
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

std::int64_t kibibytes(const std::string& text) { return number_of(text).value_or(0) * 1024; }

}  // namespace

HostFacts read_host_facts(const fs::path& root, const fs::path& folder) {
  HostFacts facts;
  facts.processor = value_of(text_of(root / "proc/cpuinfo"), "model name");
  facts.cores = static_cast<int>(available_cores().size());
  facts.online_cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  facts.core_quota = core_quota(root);
  const std::string memory = text_of(root / "proc/meminfo");
  facts.memory = kibibytes(value_of(memory, "MemTotal"));
  facts.available_memory = kibibytes(value_of(memory, "MemAvailable"));
  facts.memory_limit = memory_limit(root, facts.memory);
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
