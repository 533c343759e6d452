// Environment variables that scripts of Megatron-LM, AscendSpeed and MindSpeed set. environment.cpp
// lists how each is treated.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/options/options.h"

namespace piton::cli {

using Variables = std::map<std::string, std::string, std::less<>>;

// The variables of this process.
Variables environment_variables();

// Gives the options of `set` that were not given otherwise the values that `variables` have for
// them. Returns notes for the user: what was taken, what contradicts a flag or a file, which wins,
// and last one line with all variables that have no effect here. Throws Error(kUsage) that names a
// variable with a value that it cannot have.
std::vector<std::string> read_environment(OptionSet& set, const Variables& variables);

// A note where WORLD_SIZE is another number than the `ranks` that run; "" where it is not.
std::string world_size_note(const Variables& variables, int ranks);

// The part of docs/megatron_flags.md about variables.
std::string environment_page();

}  // namespace piton::cli
