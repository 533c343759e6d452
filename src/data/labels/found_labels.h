// The labels of a classifier whose options name none: those of its records.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/log.h"

namespace piton {

struct FoundLabels {
  std::int64_t count = 0;
  std::vector<std::string> names;  // empty: the numbers from 0 to count - 1
};

// Of all records of the files, whatever their order is: the numbers, if there are all from 0 on;
// other numbers by their size, as names; else names by their bytes. `several`: one label is enough,
// and a record may have none. Throws Error(kData) for a record that cannot be read or has an empty
// label or a number with a fraction, and where there are too few labels.
FoundLabels labels_of_records(const std::vector<std::string>& files, const std::string& map_keys,
                              bool several, Log& log);

}  // namespace piton
