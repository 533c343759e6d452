// Lists of names for messages.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace piton {

// "a, b, c and 4 more": the first `most` names, and the count of the others.
std::string name_list(const std::vector<std::string>& names, std::size_t most);

}  // namespace piton
