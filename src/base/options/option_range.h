// Checks of numbers in options, with one wording for all.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace piton {

// The largest size of one dimension, or count of things in memory: a product of two still fits into
// 64 bits.
inline constexpr std::int64_t kLargestSize = std::numeric_limits<std::int32_t>::max();

// Throws Error(kUsage), "FLAG: got 0, wanted 1 or more", unless least <= value <= most.
void check_range(std::string_view flag, std::int64_t value, std::int64_t least,
                 std::int64_t most = std::numeric_limits<std::int64_t>::max());

// Numbers that training computes with: fp32 holds them and their inverses, with room for a product.
// 1e-320 would be 0 there, and 1e300 infinite.
inline constexpr double kLeastNumber = 1e-30;
inline constexpr double kMostNumber = 1e30;

// Throws Error(kUsage), "FLAG: got inf, wanted a number above 0, 1e-30 to 1e+30".
void check_positive(std::string_view flag, double value);
// The same, but 0 is allowed: "FLAG: got -1, wanted 0 or more, at most 1e+30".
void check_not_negative(std::string_view flag, double value);

// a b c, or Error(kUsage) "FLAG: WHAT would be 1.8e+30, ..." if it does not fit into 62 bits.
std::int64_t checked_product(std::string_view flag, std::string_view what, std::int64_t a,
                             std::int64_t b, std::int64_t c = 1);

}  // namespace piton
