// Lists of token ids in a JSON file: --ids-file of score and generate.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace piton::cli {

// [[1, 2, 3], [4, 5]]. Throws Error(kData) with the file for anything else.
std::vector<std::vector<std::int32_t>> ids_of_file(const std::string& path);

}  // namespace piton::cli
