// Numbers in the names of files that belong together.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace piton {

// The numbers of a name of this form, where {2,4} is a number of 2 to 4 decimal digits (9 at most)
// and other characters are themselves. The name has no digit after such a number. nullopt: another
// name.
//
//   numbers_in_name("layer_04-model_00.pt", "layer_{2,4}-model_{2,4}.pt")    4, 0
std::optional<std::vector<int>> numbers_in_name(std::string_view name, std::string_view form);

}  // namespace piton
