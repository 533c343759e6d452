// Splits a record of a csv file (RFC 4180) into its fields.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace piton {

// Overwrites `fields`; the line end of `record` is not part of them. Returns the error, if any: an
// open quote, or text after a closing one.
std::optional<std::string> split_csv_fields(std::string_view record, char separator,
                                            std::vector<std::string>& fields);

}  // namespace piton
