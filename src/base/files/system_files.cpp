#include "base/files/system_files.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"

namespace piton {

namespace fs = std::filesystem;

std::string system_text(const fs::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::optional<std::int64_t> leading_number(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(" \t\n"), text.size());
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc() || end == text.data() + begin) return std::nullopt;
  return value;
}

std::string value_of_line(const std::string& text, const std::string& key) {
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

std::vector<std::string> group_texts(const fs::path& root, const std::string& controller,
                                     const std::string& name) {
  std::istringstream groups(system_text(root / "proc/self/cgroup"));
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
      if (std::string text = system_text(tree / path / name); !text.empty()) found.push_back(text);
      if (path.empty()) break;
      path = path.parent_path();
    }
  }
  return found;
}

namespace {

std::optional<std::int64_t> memory_limit(const fs::path& root, std::int64_t memory) {
  std::optional<std::int64_t> least;
  for (const char* name : {"memory.max", "memory.limit_in_bytes"}) {
    for (const std::string& text : group_texts(root, "memory", name)) {
      const auto limit = leading_number(text);  // "max" is no number, and version 1 has a huge one
      if (limit && *limit < memory) least = std::min(least.value_or(*limit), *limit);
    }
  }
  return least;
}

// What is left of the limits of this process's groups. Files that no one has used lately are given
// back by the system when memory is short.
std::optional<std::int64_t> left_of_limits(const fs::path& root) {
  const auto texts = [&](const char* name) { return group_texts(root, "memory", name); };
  const auto least_left = [&](const char* limits, const char* usages, const char* inactive) {
    const std::vector<std::string> limit = texts(limits), usage = texts(usages);
    const std::vector<std::string> stat = texts("memory.stat");
    std::optional<std::int64_t> least;
    for (std::size_t i = 0; i < std::min({limit.size(), usage.size(), stat.size()}); ++i) {
      const auto most = leading_number(limit[i]), used = leading_number(usage[i]);
      if (!most || !used) continue;  // "max"
      const std::size_t at = ("\n" + stat[i]).find(fmt::format("\n{} ", inactive));
      const std::int64_t cached =
          at == std::string::npos
              ? 0
              : leading_number(std::string_view(stat[i]).substr(at + std::string(inactive).size()))
                    .value_or(0);
      const std::int64_t left = std::max<std::int64_t>(*most - *used + cached, 0);
      least = std::min(least.value_or(left), left);
    }
    return least;
  };
  const auto now = least_left("memory.max", "memory.current", "inactive_file");
  return now ? now
             : least_left("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file");
}

}  // namespace

HostMemory host_memory(const fs::path& root) {
  const std::string text = system_text(root / "proc/meminfo");
  const auto bytes_of = [&](const char* key) {
    return leading_number(value_of_line(text, key)).value_or(0) * 1024;  // the file says KiB
  };
  HostMemory memory{.all = bytes_of("MemTotal"),
                    .available = bytes_of("MemAvailable"),
                    .swap = bytes_of("SwapFree")};
  memory.limit = memory_limit(root, memory.all);
  // An old system does not say what is available.
  const std::int64_t available =
      memory.available > 0 ? memory.available : std::numeric_limits<std::int64_t>::max();
  memory.left = std::min(available, left_of_limits(root).value_or(available));
  return memory;
}

}  // namespace piton
