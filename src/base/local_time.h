// Local times in a readable form.
#pragma once

#include <array>
#include <ctime>
#include <string>

namespace piton {

// "2026-11-22 14:05:59" in the time zone of this machine; `seconds` since 1970.
inline std::string local_time(std::time_t seconds) {
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

}  // namespace piton
