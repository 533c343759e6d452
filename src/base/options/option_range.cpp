#include "base/options/option_range.h"

#include "base/error.h"

namespace piton {

void check_range(std::string_view flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  if (most == std::numeric_limits<std::int64_t>::max()) {
    throw Error(Fault::kUsage, "{}: got {}, wanted {} or more", flag, value, least);
  }
  throw Error(Fault::kUsage, "{}: got {}, wanted {} to {}", flag, value, least, most);
}

void check_positive(std::string_view flag, double value) {
  if (value >= kLeastNumber && value <= kMostNumber) return;
  throw Error(Fault::kUsage, "{}: got {}, wanted a number above 0, {} to {}", flag, value,
              kLeastNumber, kMostNumber);
}

void check_not_negative(std::string_view flag, double value) {
  if (value == 0 || (value >= kLeastNumber && value <= kMostNumber)) return;
  if (value > 0 && value < kLeastNumber) {
    throw Error(Fault::kUsage, "{}: got {}, wanted 0, or {} or more", flag, value, kLeastNumber);
  }
  throw Error(Fault::kUsage, "{}: got {}, wanted 0 or more, at most {}", flag, value, kMostNumber);
}

std::int64_t checked_product(std::string_view flag, std::string_view what, std::int64_t a,
                             std::int64_t b, std::int64_t c) {
  const double product = static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
  if (product < 0x1p62) return a * b * c;
  throw Error(Fault::kUsage, "{}: {} would be {:.2g}, more than can be counted; lower it", flag,
              what, product);
}

}  // namespace piton
