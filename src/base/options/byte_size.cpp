#include "base/options/byte_size.h"

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace piton {

std::optional<double> scale_of(std::string_view letters) {
  if (letters.empty()) return 1.0;
  constexpr std::string_view kLetters = "kMGT";
  const char letter = letters[0] == 'K' ? 'k' : letters[0];
  const std::size_t power = kLetters.find(letter);
  const bool binary = letters.size() == 2 && letters[1] == 'i';
  if (power == std::string_view::npos || letters.size() > (binary ? 2U : 1U)) return {};
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

std::int64_t bytes_of_size(std::string_view flag, const std::string& text) {
  if (text.empty()) return 0;
  constexpr double kMostBytes = 0x1p62;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  if (code == std::errc() && unit.ends_with('B')) {
    const std::optional<double> scale = scale_of(unit.substr(0, unit.size() - 1));
    if (scale && value > 0 && value * *scale < kMostBytes) {
      return static_cast<std::int64_t>(value * *scale);
    }
  }
  throw Error(Fault::kUsage, "{}: got \"{}\", wanted a size, as in 80GB or 64GiB", flag, text);
}

}  // namespace piton
