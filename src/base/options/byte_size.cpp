#include "base/options/byte_size.h"

#include <charconv>

#include "base/error.h"

namespace piton {

std::int64_t bytes_of_size(std::string_view flag, const std::string& text) {
  if (text.empty()) return 0;
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"TiB", 1099511627776.0},
                             {"GiB", 1073741824.0},
                             {"MiB", 1048576.0},
                             {"TB", 1e12},
                             {"GB", 1e9},
                             {"MB", 1e6}};
  constexpr double kMostBytes = 0x1p62;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    double value = 0;
    const char* end = text.data() + text.size() - unit.name.size();
    const auto [stop, code] = std::from_chars(text.data(), end, value);
    if (code == std::errc() && stop == end && value > 0 && value * unit.bytes < kMostBytes) {
      return static_cast<std::int64_t>(value * unit.bytes);
    }
  }
  throw Error(Fault::kUsage, "{}: got \"{}\", wanted a size, as in 80GB or 64GiB", flag, text);
}

}  // namespace piton
