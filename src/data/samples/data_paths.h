// The paths of --data-path and its like: independent of the working directory, and short ones.
#pragma once

#include <string>
#include <vector>

#include "data/samples/data_options.h"

namespace piton {

// `options` with absolute paths; weights and shares are unchanged.
DataOptions with_absolute_paths(DataOptions options);

// The last parts of different paths, with as many folders before them as tell all of them apart:
// {"a/text", "b/text"}.
std::vector<std::string> distinct_ends(const std::vector<std::string>& paths);

}  // namespace piton
