// The options of a run as its folder has them, for display.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace piton {

// Names and values of a file that OptionSet::to_toml() wrote, in its order; text is without quotes.
// A file that is not TOML is Error(kUsage) with file:line. Defined in options_toml.cpp.
std::vector<std::pair<std::string, std::string>> options_in_file(const std::filesystem::path& file);

}  // namespace piton
