// Files of /proc and /sys that say what the system gives this process. `root`: "/", or a folder
// with the files of a made-up system (tests).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

// Such files say nothing of their size; "" where there is none.
std::string system_text(const std::filesystem::path& file);

// The integer at the beginning of `text`, after white space.
std::optional<std::int64_t> leading_number(std::string_view text);

// The value after "KEY:" in a text of lines of keys and values; "" if there is none.
std::string value_of_line(const std::string& text, const std::string& key);

// The texts of the files `name` of this process's control group and of those above it, in this
// order: each limits it. Version 2 has one tree, version 1 one for each `controller`.
std::vector<std::string> group_texts(const std::filesystem::path& root,
                                     const std::string& controller, const std::string& name);

// Bytes of memory.
struct HostMemory {
  std::int64_t all = 0;               // of the machine
  std::int64_t available = 0;         // without pushing others out
  std::optional<std::int64_t> limit;  // of the container, if it is less than all
  // What this process may still take: `available`, and under a limit no more than is left of it,
  // where cached files count as free.
  std::int64_t left = 0;
  std::int64_t swap = 0;  // that is free
};
HostMemory host_memory(const std::filesystem::path& root = "/");

}  // namespace piton
