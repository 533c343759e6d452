// Cuts input files into blocks of whole records, in order. One worker processes a block. The ends
// of blocks depend only on the bytes, so a resumed run cuts the same blocks.
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

// Shared by all blocks of a file.
struct FileFacts {
  std::size_t index = 0;  // in the list of input files
  std::string path;
  InputFormat format = InputFormat::kText;
  std::vector<std::string> columns;  // csv, tsv, parquet: their names
  std::vector<std::string> read;     // parquet: the columns that are read, in this order
  std::vector<bool> json;            // parquet: which of these are given as JSON, not as texts
};

// A record that could not be used, and where it begins: byte of the unpacked file, and line from 1.
// For parquet, `line` is the row, from 0, and `byte` is -1.
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
  std::string bytes;                // followed by 64 spare bytes, for simdjson
  std::vector<std::size_t> ends;    // of each record, in `bytes`
  bool open_end = false;            // the last record of the file has no end mark
  std::vector<BadRecord> unusable;  // not in `bytes`: a record above the limit, or a missing end
  // parquet: records are rows; `ends` has one entry per key and row. Unusable rows are in
  // `bad_rows`, in order, with the reason; their entries in `ends` mean nothing.
  std::vector<std::pair<std::size_t, std::string>> bad_rows;
  // Line ends before byte `counted`, so that place_of() counts each once.
  std::size_t counted = 0;
  std::int64_t counted_lines = 0;

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

// Reads the rows of one parquet file in blocks.
class ColumnReader {
 public:
  virtual ~ColumnReader() = default;
  virtual std::vector<std::string> columns() const = 0;
  struct Wanted {
    std::vector<std::string> keys;  // their columns exist
    std::size_t required = 0;  // a null in one of the first makes a row bad, in others it is ""
    std::int64_t max_record_bytes = 0;
    // Values that are no texts are given as JSON, structs without their fields that are null; ""
    // for a null.
    bool any_type = false;
  };
  virtual bool holds_text(const std::string& column) const = 0;
  // Reads the next rows of the keys; returns false at the end. Fills bytes, ends, bad_rows (null
  // values, rows whose texts together exceed the limit), first_line (row), first_byte and end_byte
  // (row number), ends_file. Which rows form a block depends only on the file. Throws Error(kData)
  // for a column that is no text, unless `any_type` is set.
  virtual bool next(const Wanted& wanted, RecordBlock& block) = 0;
  // Of the rows of the file, for progress: 0 to 1.
  virtual double share_read() const = 0;
};

// Throws Error(kUsage) with the command to run if this build cannot read Parquet.
std::unique_ptr<ColumnReader> open_parquet(const std::string& path);
bool can_read_parquet();

class BlockReader {
 public:
  struct Rules {
    SampleBy sample_by = SampleBy::kLine;
    std::vector<std::string> columns;  // columns to read; csv and parquet files must have them
    // Smaller blocks would stay in a core's cache, but unpacking evicts the tokenizer's tables from
    // it once per block, which costs more.
    std::int64_t block_bytes = 1 << 21;
    std::int64_t max_record_bytes = 64 << 20;
    std::vector<std::string> optional_columns = {};  // of parquet: read where a file has them
    bool any_type = false;  // of parquet: columns of lists, structs, numbers are read, as JSON
  };
  // Where an earlier run stopped: everything before byte `byte` of file `file` is done.
  struct Place {
    std::size_t file = 0;
    std::int64_t byte = 0;
  };

  BlockReader(std::vector<InputFile> files, Rules rules, Place from);

  // The next block, or nothing at the end. Throws Error(kData) for files that cannot be read, or
  // that lack a column, with the columns that exist.
  std::optional<RecordBlock> next();

  // Takes the memory of a finished block. Thread-safe.
  void recycle(RecordBlock block) { spares_.give(std::move(block.bytes)); }

 private:
  bool open_next_file();
  struct Cut;  // the block that is being cut from the stream
  std::optional<RecordBlock> next_of_stream();
  void end_record(Cut& cut);  // after its end was found
  void check_record_length(Cut& cut);
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
  bool file_ended_ = false;  // and the block that reports it was returned
};

}  // namespace piton
