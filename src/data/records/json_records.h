// Parses the objects of jsonl and json files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/records/record_parser.h"
#include "data/records/whole_record_parser.h"

namespace piton {

// Validates whole objects. Invalid UTF-8, lone surrogates, requested keys that occur twice or not
// at all, and values that are not text make a record bad.
std::unique_ptr<RecordParser> make_json_parser(std::vector<std::string> keys);

// Parses all of an object. The same makes a record bad, but for keys: none is requested.
std::unique_ptr<WholeRecordParser> make_whole_json_parser();

}  // namespace piton
