// Parses records with all of their keys, for readers of several keys at once.
//
//   format                      the object
//   jsonl, json                 as written, keys in their order
//   csv, tsv                    the columns as texts
//   parquet                     the same; columns of other types, where they are read, as they are
//   text, wikiextractor, ...    {"text": ...}
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/json.h"
#include "data/records/block_reader.h"
#include "data/records/record_parser.h"

namespace piton {

class WholeRecordParser {
 public:
  virtual ~WholeRecordParser() = default;
  // As RecordParser::parse(); `record` is an object where the result is kRecord.
  virtual Parsed parse(RecordBlock& block, std::size_t index, nlohmann::ordered_json& record,
                       std::string& reason) = 0;
};

std::unique_ptr<WholeRecordParser> make_whole_record_parser(const FileFacts& file,
                                                            SampleBy sample_by);

// Number of entries in RecordBlock::ends for each record of the file.
std::size_t entries_of_record(const FileFacts& file);

// Calls `use` for each record of `reader`, which it may take apart, and `refuse` for what is no
// record or for which `use` throws Error(kData).
void for_each_record(BlockReader& reader, SampleBy sample_by,
                     const std::function<void(nlohmann::ordered_json& record)>& use,
                     const std::function<void(const BadRecord& bad)>& refuse);

}  // namespace piton
