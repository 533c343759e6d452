// Finds where records end, serially and at memory speed. Many threads parse the records later
// (record_parser.h).
//
//   format          a record is
//   text            a line; under kParagraph up to a blank line; under kDocument the whole file
//   jsonl           a line
//   json            an element of the outermost array, or one of several values in a row
//   csv, tsv        a line, or several where quotes hold line ends
//   wikiextractor   up to and with </doc>
//   wiki-xml        up to and with </page>
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "data/records/input_files.h"

namespace piton {

// What one document of a text file is (--sample-by).
enum class SampleBy { kLine, kParagraph, kDocument };

class RecordScanner {
 public:
  static constexpr std::size_t kNone = std::string_view::npos;

  virtual ~RecordScanner() = default;
  // Scans the next bytes of the file. Returns how many of them belong to the current record, which
  // ends there, or kNone if it continues after them. After an end, scanning continues with the
  // bytes after it.
  virtual std::size_t scan(std::string_view bytes) = 0;
  // At the end of the file: the sign that the file was cut off, or "".
  virtual std::string_view unfinished() const { return {}; }
};

std::unique_ptr<RecordScanner> make_record_scanner(InputFormat format, SampleBy sample_by);

}  // namespace piton
