// Parses the records of a block. One parser per worker and format; it keeps its buffers.
//
//   format          keys that a record has
//   text            text
//   jsonl, json     those of the object; a list of strings is a document of several sentences
//   csv, tsv        the columns of the first line
//   wikiextractor   id, url, title, text
//   wiki-xml        id, title, text: articles (namespace 0) that are not redirects, as plain text
//   parquet         the file's columns
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/block_reader.h"

namespace piton {

// One record: for each requested key, its text or its sentences. Views are valid until the next
// call.
struct ParsedRecord {
  std::vector<std::vector<std::string_view>> texts;
};

enum class Parsed {
  kRecord,
  kNothing,  // a blank line, a redirect, the end of an array
  kBad,      // `reason` says why
};

class RecordParser {
 public:
  virtual ~RecordParser() = default;
  // Parses record `index` of `block` (for parquet: row). May change the bytes of the block.
  virtual Parsed parse(RecordBlock& block, std::size_t index, ParsedRecord& record,
                       std::string& reason) = 0;
};

// `keys` are the names in the files.
std::unique_ptr<RecordParser> make_record_parser(const FileFacts& file,
                                                 std::vector<std::string> keys, SampleBy sample_by);

// Number of records in a block.
std::size_t records_of(const RecordBlock& block, std::size_t keys);

// Where record `index` begins in the file, as line and byte. Fastest in the order of records.
BadRecord place_of(RecordBlock& block, std::size_t index, std::size_t keys);

// Offset of the first byte that is not UTF-8, or npos.
std::size_t first_bad_utf8(std::string_view text);

}  // namespace piton
