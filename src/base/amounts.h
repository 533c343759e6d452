// Amounts of memory and time, as the log, the display and reports write them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace piton {

// In MiB.
inline double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Hours, minutes and seconds: "1:02:03". `seconds`: 0 or more.
inline std::string hours_text(std::int64_t seconds) {
  return fmt::format("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

}  // namespace piton
