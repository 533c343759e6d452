// Sizes of memory as users write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace piton {

// "80GB", "64GiB", "512MB"; 0 for "". Throws Error(kUsage) that names the flag.
std::int64_t bytes_of_size(std::string_view flag, const std::string& text);

}  // namespace piton
