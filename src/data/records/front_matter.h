// YAML at the beginning of a page, as in the README.md of a data set on the Hugging Face Hub:
//
//   ---
//   configs:
//   - config_name: en
//     data_files:
//     - split: train
//       path: "en/train-*"
//   ---
//
// Reads what such pages hold: maps and lists by indentation, lists and maps in brackets on one
// line, plain and quoted scalars, comments. Anchors, tags and texts over several lines are refused
// where they are in the value that is asked for, and passed over elsewhere.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace piton {

// The value of a key at the top: objects, arrays, strings (of every scalar), null. Absent: `page`
// has no front matter or no such key. Throws Error(kData) with `where` and the line.
std::optional<nlohmann::json> front_matter_value(std::string_view page, std::string_view key,
                                                 const std::string& where);

}  // namespace piton
