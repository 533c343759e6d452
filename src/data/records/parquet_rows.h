// Whole rows of small Parquet files, with nested columns: questions of evaluation tasks.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace piton {

// Every row as an object of JSON: texts, numbers, booleans, nulls, lists and structs. Throws
// Error(kData) for a file that cannot be read or has a column of another type, Error(kUsage) as
// open_parquet().
std::vector<nlohmann::json> read_parquet_rows(const std::string& path);

}  // namespace piton
