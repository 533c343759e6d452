// The options stored in the folder of a run, for display.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace piton {

// Names and values in a file written by OptionSet::to_toml(), in its order; text values without
// quotes. A file that is not TOML is Error(kUsage) with file:line. Defined in options_toml.cpp.
std::vector<std::pair<std::string, std::string>> options_in_file(const std::filesystem::path& file);

}  // namespace piton
