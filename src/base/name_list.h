// Names in messages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace piton {

// "a, b, c and 4 more": the first `most` names, and how many are left.
std::string name_list(const std::vector<std::string>& names, std::size_t most);

}  // namespace piton
