// Objects of jsonl and json files as texts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/records/record_parser.h"

namespace piton {

// Whole objects are validated: invalid UTF-8, lone surrogates, requested keys that occur twice or
// not at all, and values that are not text are bad records.
std::unique_ptr<RecordParser> make_json_parser(std::vector<std::string> keys);

}  // namespace piton
