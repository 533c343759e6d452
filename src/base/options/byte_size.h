// Sizes as users write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace piton {

// The factor of the letters after a number: k or K, M, G, T, and Ki, Mi, Gi, Ti for powers of 1024.
// 1 for "", nullopt for unknown letters.
std::optional<double> scale_of(std::string_view letters);

// "80GB", "64GiB", "512MB"; 0 for "". Throws Error(kUsage) that names the flag.
std::int64_t bytes_of_size(std::string_view flag, const std::string& text);

}  // namespace piton
