#include "data/records/block_reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/listed.h"
#include "data/records/byte_order_mark.h"
#include "data/records/csv_fields.h"

namespace piton {
namespace {

constexpr std::size_t kReadBytes = 1 << 18;
constexpr std::size_t kLeastReadBytes = 1 << 13;
constexpr std::size_t kSpareBytes = 64;  // SIMDJSON_PADDING
constexpr std::size_t kHeadBytes = 1 << 20;

// Counts 255 strides at a time in 8-bit counters, which cannot overflow and are vectorized: several
// times faster than std::count, and every byte of the input passes here.
std::int64_t line_ends(std::string_view bytes) {
  constexpr std::size_t kStride = 32;
  std::int64_t lines = 0;
  while (bytes.size() >= kStride) {
    const std::size_t strides = std::min<std::size_t>(bytes.size() / kStride, 255);
    std::array<std::uint8_t, kStride> counts{};
    for (std::size_t i = 0; i < strides; ++i) {
      for (std::size_t k = 0; k < kStride; ++k) counts[k] += bytes[i * kStride + k] == '\n' ? 1 : 0;
    }
    for (const std::uint8_t count : counts) lines += count;
    bytes.remove_prefix(strides * kStride);
  }
  return lines + std::count(bytes.begin(), bytes.end(), '\n');
}

void check_columns(const FileFacts& file, const std::vector<std::string>& wanted) {
  for (const std::string& column : wanted) {
    if (std::find(file.columns.begin(), file.columns.end(), column) == file.columns.end()) {
      throw Error(Fault::kData, "{}: no column \"{}\"; it has {}; choose with --json-keys",
                  file.path, column, listed(file.columns, file.columns.size()));
    }
  }
}

}  // namespace

std::string describe(const BadRecord& bad) {
  if (bad.byte < 0) return fmt::format("{}: row {}: {}", bad.file, bad.line, bad.reason);
  return fmt::format("{}: line {} (byte {}): {}", bad.file, bad.line, bad.byte, bad.reason);
}

BlockReader::BlockReader(std::vector<InputFile> files, Rules rules, Place from)
    : files_(std::move(files)), rules_(std::move(rules)), from_(from), next_file_(from.file) {
  for (std::size_t i = 0; i < std::min(next_file_, files_.size()); ++i)
    finished_bytes_ += files_[i].bytes;
}

std::optional<RecordBlock> BlockReader::next() {
  while (true) {
    if (file_ == nullptr && !open_next_file()) return {};
    const std::int64_t skip_to = file_->index == from_.file ? from_.byte : 0;
    std::optional<RecordBlock> block = columns_ != nullptr ? next_of_parquet() : next_of_stream();
    if (!block) {
      finished_bytes_ += files_[file_->index].bytes;
      file_.reset();
      continue;
    }
    if (block->end_byte > skip_to) return block;
  }
}

bool BlockReader::open_next_file() {
  if (next_file_ >= files_.size()) return false;
  const InputFile& input = files_[next_file_];
  file_ = std::make_shared<FileFacts>();
  file_->index = next_file_++;
  file_->path = input.path == "-" ? "standard input" : input.path;
  columns_.reset();
  stream_ = open_byte_stream(input.path);
  buffer_.clear();
  scanned_ = 0;
  buffer_byte_ = 0;
  buffer_line_ = 1;
  stream_ended_ = false;
  file_ended_ = false;
  while (!stream_ended_ && buffer_.size() < (input.format ? kReadBytes : kHeadBytes)) fill();
  refuse_other_encodings(buffer_, file_->path);
  file_->format = input.format ? *input.format : detect_format(input.path, buffer_);
  if (file_->format == InputFormat::kParquet) {
    stream_.reset();
    columns_ = open_parquet(input.path);
    file_->columns = columns_->columns();
    check_columns(*file_, rules_.columns);
    file_->read = rules_.columns;
    for (const std::string& column : rules_.optional_columns) {
      if (std::find(file_->columns.begin(), file_->columns.end(), column) != file_->columns.end()) {
        file_->read.push_back(column);
      }
    }
    for (const std::string& column : file_->read)
      file_->json.push_back(rules_.any_type && !columns_->holds_text(column));
    return true;
  }
  const std::size_t mark = byte_order_mark(buffer_);
  buffer_.erase(0, mark);
  buffer_byte_ = static_cast<std::int64_t>(mark);
  scanner_ = make_record_scanner(file_->format, rules_.sample_by);
  if ((file_->format == InputFormat::kCsv || file_->format == InputFormat::kTsv) &&
      !buffer_.empty()) {
    read_csv_header();
    check_columns(*file_, rules_.columns);
  }
  return true;
}

void BlockReader::read_csv_header() {
  std::size_t end = RecordScanner::kNone;
  while (true) {
    end = scanner_->scan(std::string_view(buffer_).substr(scanned_));
    if (end != RecordScanner::kNone || stream_ended_) break;
    scanned_ = buffer_.size();
    if (buffer_.size() > static_cast<std::size_t>(rules_.max_record_bytes)) {
      throw Error(Fault::kData,
                  "{}: the first line, which names the columns, is longer than {} bytes",
                  file_->path, rules_.max_record_bytes);
    }
    fill();
  }
  const std::size_t size = end == RecordScanner::kNone ? buffer_.size() : scanned_ + end;
  const std::string header = buffer_.substr(0, size);
  std::vector<std::string> fields;
  if (const auto fault =
          split_csv_fields(header, file_->format == InputFormat::kTsv ? '\t' : ',', fields)) {
    throw Error(Fault::kData, "{}: line 1: {}", file_->path, *fault);
  }
  file_->columns = std::move(fields);
  buffer_byte_ += static_cast<std::int64_t>(size);
  buffer_line_ += line_ends(header);
  buffer_.erase(0, size);
  scanned_ = 0;
}

bool BlockReader::fill() {
  const std::size_t before = buffer_.size();
  // Little more than a block needs: bytes after its end are copied to the next block.
  const auto wanted = static_cast<std::size_t>(rules_.block_bytes);
  const std::size_t distance = before < wanted ? wanted - before : before - wanted;
  buffer_.resize(before + std::clamp(distance, kLeastReadBytes, kReadBytes));
  const std::size_t got = stream_->read(std::span(buffer_).subspan(before));
  buffer_.resize(before + got);
  stream_ended_ = got == 0;
  return got > 0;
}

struct BlockReader::Cut {
  RecordBlock block = {};
  std::size_t whole = 0;           // bytes of complete records in buffer_
  std::int64_t lines = 0;          // their lines; counted at once, while they are in the L1 cache
  std::int64_t dropped = 0;        // bytes of oversized records that were taken out of buffer_
  std::int64_t dropped_lines = 0;  // of those
  bool dropping = false;  // inside an oversized record; its bytes are dropped as they are read
  std::int64_t record_bytes_dropped = 0;  // of that record
};

void BlockReader::drop(Cut& cut, std::size_t to) {
  const std::size_t bytes = to - cut.whole;
  cut.record_bytes_dropped += static_cast<std::int64_t>(bytes);
  cut.dropped += static_cast<std::int64_t>(bytes);
  cut.dropped_lines += line_ends(std::string_view(buffer_).substr(cut.whole, bytes));
  buffer_.erase(cut.whole, bytes);
  scanned_ = cut.whole;
}

void BlockReader::check_record_length(Cut& cut) {
  if (cut.dropping || scanned_ - cut.whole <= static_cast<std::size_t>(rules_.max_record_bytes)) {
    return;
  }
  cut.block.unusable.push_back(
      {file_->path,
       buffer_line_ + cut.dropped_lines + line_ends(std::string_view(buffer_).substr(0, cut.whole)),
       buffer_byte_ + cut.dropped + static_cast<std::int64_t>(cut.whole), ""});
  cut.record_bytes_dropped = 0;
  cut.dropping = true;
}

void BlockReader::end_too_long(Cut& cut) {
  cut.block.unusable.back().reason =
      fmt::format("the record has {} bytes, above --max-record-bytes {}{}",
                  cut.record_bytes_dropped, rules_.max_record_bytes,
                  file_->format == InputFormat::kText && rules_.sample_by == SampleBy::kDocument
                      ? "; --sample-by paragraph cuts a text file at its blank lines"
                      : "");
  cut.dropping = false;
}

void BlockReader::end_record(Cut& cut) {
  if (cut.dropping) {
    drop(cut, scanned_);
    end_too_long(cut);
    return;
  }
  cut.lines += line_ends(std::string_view(buffer_).substr(cut.whole, scanned_ - cut.whole));
  cut.whole = scanned_;
  cut.block.ends.push_back(cut.whole);
}

void BlockReader::end_stream(Cut& cut) {
  if (cut.dropping) end_too_long(cut);
  if (buffer_.size() > cut.whole) {
    cut.lines += line_ends(std::string_view(buffer_).substr(cut.whole));
    cut.whole = buffer_.size();
    cut.block.ends.push_back(cut.whole);
    cut.block.open_end = true;
  }
  if (const auto what = scanner_->unfinished(); !what.empty()) {
    cut.block.unusable.push_back(
        {file_->path, buffer_line_ + cut.dropped_lines + line_ends(buffer_),
         buffer_byte_ + cut.dropped + static_cast<std::int64_t>(buffer_.size()),
         std::string(what)});
  }
  cut.block.ends_file = true;
  file_ended_ = true;
}

// The block takes the buffer; what belongs to the next one is copied.
void BlockReader::hand_over(Cut& cut) {
  RecordBlock& block = cut.block;
  block.first_byte = buffer_byte_;
  block.first_line = buffer_line_;
  std::string rest = spares_.take();
  rest.assign(buffer_, cut.whole);
  rest.reserve(static_cast<std::size_t>(rules_.block_bytes) + kReadBytes + kSpareBytes);
  buffer_.resize(cut.whole);
  buffer_.reserve(cut.whole + kSpareBytes);
  block.bytes = std::exchange(buffer_, std::move(rest));
  scanned_ -= cut.whole;
  buffer_byte_ += static_cast<std::int64_t>(cut.whole) + cut.dropped;
  buffer_line_ += cut.lines + cut.dropped_lines;
  block.end_byte = buffer_byte_;
  block.consumed_bytes = finished_bytes_ + stream_->consumed_bytes();
}

std::optional<RecordBlock> BlockReader::next_of_stream() {
  if (file_ended_) return {};
  Cut cut;
  cut.block.file = file_;
  while (cut.whole < static_cast<std::size_t>(rules_.block_bytes) &&
         (cut.block.unusable.empty() || cut.dropping)) {
    const std::size_t end = scanner_->scan(std::string_view(buffer_).substr(scanned_));
    const bool found = end != RecordScanner::kNone;
    scanned_ = found ? scanned_ + end : buffer_.size();
    check_record_length(cut);
    if (found) {
      end_record(cut);
      continue;
    }
    if (cut.dropping) drop(cut, scanned_);
    if (stream_ended_) {
      end_stream(cut);
      break;
    }
    fill();
  }
  if (cut.whole == 0 && cut.block.unusable.empty()) return {};
  hand_over(cut);
  return std::move(cut.block);
}

std::optional<RecordBlock> BlockReader::next_of_parquet() {
  RecordBlock block;
  block.file = file_;
  const ColumnReader::Wanted wanted{.keys = file_->read,
                                    .required = rules_.columns.size(),
                                    .max_record_bytes = rules_.max_record_bytes,
                                    .any_type = rules_.any_type};
  if (!columns_->next(wanted, block)) return {};
  const InputFile& input = files_[file_->index];
  block.consumed_bytes =
      finished_bytes_ +
      static_cast<std::int64_t>(static_cast<double>(input.bytes) * columns_->share_read());
  return block;
}

}  // namespace piton
