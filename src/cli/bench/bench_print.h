// The figures of `piton bench` for people.
#pragma once

#include "base/json.h"

namespace piton::cli {

// Prints numbers one per line with their meaning, and lists as tables.
void print_bench(const nlohmann::ordered_json& result);

}  // namespace piton::cli
