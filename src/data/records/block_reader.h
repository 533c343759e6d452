// Input files cut into blocks of whole records, in order. A block is what one worker takes at a
// time; where blocks end depends on the bytes alone, so a run that resumes after a kill cuts the
// same ones.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/records/byte_stream.h"
#include "data/records/input_files.h"
#include "data/records/record_scanner.h"
#include "data/records/spares.h"

namespace piton {

// What every block of a file shares.
struct FileFacts {
  std::size_t index = 0;  // in the list of input files
  std::string path;
  InputFormat format = InputFormat::kText;
  std::vector<std::string> columns;  // csv, tsv, parquet: their names
};

// A record that could not be used, and where it begins (bytes of the unpacked file; lines from 1;
// for parquet, `line` is the row, from 0, and `byte` is -1).
struct BadRecord {
  std::string file;
  std::int64_t line = 0;
  std::int64_t byte = 0;
  std::string reason;
};
// "FILE: line 3 (byte 120): reason", or for parquet "FILE: row 3: reason".
std::string describe(const BadRecord& bad);

struct RecordBlock {
  std::shared_ptr<const FileFacts> file;
  std::int64_t first_byte = 0;
  std::int64_t first_line = 1;
  std::string bytes;              // followed by 64 spare bytes, as simdjson wants
  std::vector<std::size_t> ends;  // of each record, in `bytes`
  bool open_end = false;          // the file ends without an end of its last record
  std::vector<BadRecord>
      unusable;  // after the records: one above the limit, an end that is missing
  // parquet: records are rows; `ends` has one entry for each key of each row. Rows of no use stand
  // in `bad_rows`, in order, with the reason; what `ends` says of them does not count.
  std::vector<std::pair<std::size_t, std::string>> bad_rows;

  // The bytes of record `index`.
  std::string_view record(std::size_t index) const {
    const std::size_t begin = index == 0 ? 0 : ends[index - 1];
    return std::string_view(bytes).substr(begin, ends[index] - begin);
  }

  // Where reading continues after this block.
  std::int64_t end_byte = 0;
  bool ends_file = false;
  std::int64_t consumed_bytes = 0;  // packed bytes of all files read when the block was cut
};

// Rows of one parquet file as blocks; null where this build has no reader.
class ColumnReader {
 public:
  virtual ~ColumnReader() = default;
  virtual std::vector<std::string> columns() const = 0;
  // The next rows of `keys`, whose columns exist; false at the end. Fills bytes, ends, bad_rows
  // (null values, rows whose texts together exceed `max_record_bytes`), first_line (row),
  // first_byte and end_byte (row number), ends_file. Which rows make a block follows from the file
  // alone.
  virtual bool next(const std::vector<std::string>& keys, std::int64_t max_record_bytes,
                    RecordBlock& block) = 0;
};

// Throws Error(kUsage) with the command that mends it where this build cannot read Parquet.
std::unique_ptr<ColumnReader> open_parquet(const std::string& path);
bool can_read_parquet();

class BlockReader {
 public:
  struct Rules {
    SampleBy sample_by = SampleBy::kLine;
    std::vector<std::string> columns;  // that are read; csv and parquet files must have them
    // Smaller ones would stay in a core's cache, but unpacking pushes the tokenizer's tables out of
    // it once a block, and that costs more.
    std::int64_t block_bytes = 1 << 21;
    std::int64_t max_record_bytes = 64 << 20;
  };
  // Where an earlier run stopped: everything before byte `byte` of file `file` is done.
  struct Place {
    std::size_t file = 0;
    std::int64_t byte = 0;
  };

  BlockReader(std::vector<InputFile> files, Rules rules, Place from);

  // The next block, or nothing at the end. Throws Error(kData) for files that cannot be read or
  // lack a column, naming those that exist.
  std::optional<RecordBlock> next();

  // Takes the memory of a block that is done with. May be called from any thread.
  void recycle(RecordBlock block) { spares_.give(std::move(block.bytes)); }

 private:
  bool open_next_file();
  struct Cut;  // the block that is being cut from the stream
  std::optional<RecordBlock> next_of_stream();
  void end_record(Cut& cut);  // its end was found
  void look_for_too_long(Cut& cut);
  void end_too_long(Cut& cut);
  void drop(Cut& cut, std::size_t to);  // what follows the complete records
  void end_stream(Cut& cut);
  void hand_over(Cut& cut);
  std::optional<RecordBlock> next_of_parquet();
  bool fill();
  void read_csv_header();

  std::vector<InputFile> files_;
  Rules rules_;
  Place from_;
  std::size_t next_file_ = 0;
  std::int64_t finished_bytes_ = 0;  // packed bytes of the files before this one

  Spares<std::string> spares_;

  std::shared_ptr<FileFacts> file_;
  std::unique_ptr<ByteStream> stream_;
  std::unique_ptr<ColumnReader> columns_;
  std::unique_ptr<RecordScanner> scanner_;
  std::string buffer_;            // from the start of the current block on
  std::size_t scanned_ = 0;       // of buffer_
  std::int64_t buffer_byte_ = 0;  // place of buffer_[0] in the unpacked file
  std::int64_t buffer_line_ = 1;
  bool stream_ended_ = false;
  bool file_ended_ = false;  // and the block that says so was given out
};

}  // namespace piton
