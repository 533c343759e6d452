// The records of a file of questions, as JSON objects.
//
//   .jsonl, .ndjson   an object a line
//   .json             a list of objects, or an object with the list under "examples"
//   .csv, .tsv        RFC 4180; fields are text, also "None", "NA" and numbers
//   .txt, .raw        one record, the whole file under "text"
//   .parquet          an object a row
//
// Files of text may be packed (gz, zst, bz2, xz).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace piton {

// Whether the name is that of a file of one of these formats.
bool is_task_file(const std::filesystem::path& path);

// `columns`: the names of the fields of a csv file without a header. A first line that holds the
// first of these names, in upper or lower case, is a header. Empty: every csv file has one.
//
// Throws Error(kData) naming file and line for what cannot be read, and for rows whose number of
// fields is another than that of the columns.
std::vector<nlohmann::json> read_task_records(const std::filesystem::path& path,
                                              const std::vector<std::string>& columns);

// The value of `name` in `fields`: the field itself, or one whose name differs in case alone.
// Null if there is none.
const nlohmann::json* find_field(const nlohmann::json& fields, std::string_view name);

// The value that `template_text` names if it is one {name} and nothing else, a field or an element
// as below. Null if it is another text, or if there is no such value.
const nlohmann::json* named_value(std::string_view template_text, const nlohmann::json& fields);

// `template_text` with {name} replaced by that field, {name.2} by element 2 of a list, {{ and }}
// by braces. {name|strip} and {name|lstrip} remove white space. Numbers are written as JSON, true
// and false as these words, null as nothing. Throws Error(kData) beginning with `where`, with the
// fields that exist, if one does not.
std::string rendered(std::string_view template_text, const nlohmann::json& fields,
                     const std::string& where);

}  // namespace piton
